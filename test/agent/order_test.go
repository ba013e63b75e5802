package agent_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	devicesfake "github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	numafake "github.com/kubeletkit/kubeletkit/node/placement/numa/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	shutdownfake "github.com/kubeletkit/kubeletkit/node/shutdown/fake"
	"github.com/kubeletkit/kubeletkit/node/users"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// licences is a component of a vendor that refuses pods. It keeps its node.
type licences struct {
	node  lifecycle.Node
	order lifecycle.Order
	admit func(pod *v1.Pod) error
}

func (*licences) Name() string { return "licences" }

func (l *licences) Order() lifecycle.Order { return l.order }

func (l *licences) Join(node lifecycle.Node) error {
	l.node = node
	return nil
}

func (l *licences) Admit(req lifecycle.AdmitRequest) (none lifecycle.AdmitResponse, _ error) {
	return none, l.admit(req.Pod)
}

// The components of a node place a pod in the same way wherever they are in Options.Join. A component of a vendor that
// comes before the topology manager refuses a pod that has no devices yet.
func TestShuffledComponents(t *testing.T) {
	const port, nic = "example.com/port", "example.com/nic"
	machine := numafake.Machine{Nodes: 2, Cores: 4, Memory: 8 << 30}.Numa()
	for range 20 {
		seed, dir := rand.Uint64(), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			rt := fake.New(fake.Options{})
			ports := devicesfake.New(port, append(onNode(0, "a0", "a1", "a2"), onNode(1, "b0", "b1", "b2")...)...)
			nics := devicesfake.New(nic, onNode(1, "n")...)
			policy, err := topology.NewPolicy(topology.PolicySingleNUMANode, machine, topology.PolicyOptions{})
			require.NoError(t, err)
			placement, err := topology.New(topology.Options{Policy: policy})
			require.NoError(t, err)
			exclusive, err := cpus.New(machine, filepath.Join(dir, cpus.CheckpointName), rt,
				cpus.Options{ReservedCount: 1})
			require.NoError(t, err)
			reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
			mem, err := memory.New(filepath.Join(dir, memory.FileName), machine, memory.Options{
				Reserved: []memory.Reservation{{Node: 0, Limits: reserved}}, NodeReserved: reserved,
			})
			require.NoError(t, err)
			dev, err := devices.New(filepath.Join(dir, devices.CheckpointName),
				devices.Options{Providers: []devices.Provider{ports, nics}})
			require.NoError(t, err)
			down, err := shutdown.New(shutdown.Periods{{Priority: 0, GracePeriod: time.Minute}},
				shutdownfake.NewLogind(dir), shutdown.Options{DropInDir: dir})
			require.NoError(t, err)
			ranges, err := users.New(filepath.Join(dir, "pods"), users.Options{Pool: users.KubeletIDs, MaxPods: 10})
			require.NoError(t, err)
			held := -1 // of the pod that the vendor refuses
			mine := &licences{order: lifecycle.Order{Before: []string{"topology"}}, admit: func(pod *v1.Pod) error {
				if pod.Name != "refused" {
					return nil
				}
				held = len(dev.Devices(pod.UID))
				return lifecycle.Refuse("NoLicence", "no licence is left")
			}}
			join := []lifecycle.Component{exclusive, mem, placement, dev, down, ranges, mine}
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(join), func(i, j int) { join[i], join[j] = join[j], join[i] })
			n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = join })
			defer n.stop(t)
			n.after(time.Second)
			web := guaranteed("web", "2", "1Gi", map[v1.ResourceName]string{port: "2", nic: "1"})
			n.source.Set(web, guaranteed("refused", "1", "1Gi", map[v1.ResourceName]string{port: "1"}))
			pods := n.after(time.Second)
			require.Equal(t, v1.PodRunning, pods["web"].Status.Phase, "seed %d: %s", seed, pods["web"].Status.Message)
			require.Equal(t, "NoLicence", pods["refused"].Status.Reason, "seed %d", seed)
			assert.Zero(t, held, "seed %d", seed)
			var given []string
			for _, a := range dev.Devices(web.UID) {
				for _, d := range a.Devices {
					given = append(given, d.ID)
				}
			}
			assert.ElementsMatch(t, []string{"b0", "b1", "n"}, given, "seed %d: all on the node of the NIC", seed)
			var names []string
			for _, c := range mine.node.Components() {
				names = append(names, c.Name())
			}
			assert.Less(t, slices.Index(names, "topology"), slices.Index(names, "devices"))
			assert.Less(t, slices.Index(names, "graceful shutdown"), slices.Index(names, "topology"))
		})
	}
}

// An agent whose components declare a cycle is not made.
func TestCycleOfComponents(t *testing.T) {
	l := &licences{order: lifecycle.Order{Before: []string{"topology"}, After: []string{"devices"}}}
	dev, err := devices.New(filepath.Join(t.TempDir(), devices.CheckpointName), devices.Options{})
	require.NoError(t, err)
	_, err = kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Join: []lifecycle.Component{dev, l}})
	assert.EqualError(t, err, `kubeletkit: Options.Join: lifecycle: components declare an order that is a cycle: `+
		`"devices" comes before "licences" (After of "licences"), "licences" comes before "topology" (Before of `+
		`"licences"), "topology" comes before "devices" (After of "devices")`)
}
