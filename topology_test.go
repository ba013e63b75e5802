package kubeletkit_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/resources/cpus"
	"github.com/kubeletkit/kubeletkit/resources/devices"
	devicesfake "github.com/kubeletkit/kubeletkit/resources/devices/fake"
	"github.com/kubeletkit/kubeletkit/resources/memory"
	"github.com/kubeletkit/kubeletkit/resources/numa"
	"github.com/kubeletkit/kubeletkit/resources/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// cpuSetter sets the CPUs of no container.
type cpuSetter struct{}

func (cpuSetter) SetCPUSet(context.Context, runtime.ContainerID, string) error { return nil }

// startPlaced starts an agent that places containers on a machine of two memory nodes with four CPUs and 8 GiB each, and devices.
func startPlaced(t *testing.T, dir string, rt *fake.Runtime, policy string, opts topology.Options, providers ...devices.Provider) *node {
	t.Helper()
	machine := numa.Machine{Nodes: []numa.Node{{ID: 0, Memory: 8 << 30}, {ID: 1, Memory: 8 << 30}}}
	for id := range 8 {
		machine.CPUs = append(machine.CPUs, numa.CPU{ID: id, Core: id, Socket: id / 4 * 4, UncoreCache: id / 4 * 4, Node: id / 4})
	}
	var err error
	opts.Policy, err = topology.NewPolicy(policy, machine, topology.PolicyOptions{})
	require.NoError(t, err)
	exclusive, err := cpus.New(machine, filepath.Join(dir, cpus.CheckpointName), cpuSetter{}, cpus.Options{ReservedCount: 1})
	require.NoError(t, err)
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	mem, err := memory.New(filepath.Join(dir, memory.FileName), machine, memory.Options{
		Reserved: []memory.Reservation{{Node: 0, Limits: reserved}}, NodeReserved: reserved,
	})
	require.NoError(t, err)
	return startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
		dev, err := devices.New(filepath.Join(dir, devices.CheckpointName), devices.Options{Providers: providers})
		require.NoError(t, err)
		manager, err := topology.New([]topology.Provider{exclusive, mem, dev}, opts)
		require.NoError(t, err)
		o.Join = []lifecycle.Component{exclusive, mem, manager, dev}
	})
}

// guaranteed returns a pod with a container of the QoS class Guaranteed for each list of limits.
func guaranteed(name string, cpu, mem string, devices map[v1.ResourceName]string) *v1.Pod {
	pod := makePod(name)
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(mem)}
	for name, n := range devices {
		limits[name] = resource.MustParse(n)
	}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: limits, Limits: limits}
	return pod
}

func onNode(node int, ids ...string) (out []devices.Device) {
	for _, id := range ids {
		out = append(out, devices.Device{ID: id, Nodes: numa.Of(node)})
	}
	return out
}

// A provider that chooses devices is offered those of the nodes on which the other resources of the container are.
func TestPreferredDevicesAreOnTheNode(t *testing.T) {
	const port, nic = "example.com/port", "example.com/nic"
	synctest.Test(t, func(t *testing.T) {
		ports := devicesfake.New(port, append(onNode(0, "a0", "a1", "a2"), onNode(1, "b0", "b1", "b2")...)...)
		ports.OnPrefer = func(context.Context, devices.PreferRequest) ([]string, error) { return []string{"a0", "b2", "a1"}, nil }
		nics := devicesfake.New(nic, onNode(1, "n")...)
		n := startPlaced(t, t.TempDir(), fake.New(fake.Options{}), topology.PolicySingleNUMANode, topology.Options{}, ports, nics)
		defer n.stop(t)
		n.after(time.Second)
		n.source.Set(guaranteed("web", "2", "1Gi", map[v1.ResourceName]string{port: "2", nic: "1"}))
		require.Equal(t, v1.PodRunning, n.after(time.Second)["web"].Status.Phase)
		assert.Equal(t, []devicesfake.Call{
			{Method: "Prefer", IDs: []string{"b0", "b1", "b2"}},
			{Method: "Allocate", Container: "main", IDs: []string{"b0", "b2"}},
			{Method: "PreStart", Container: "main", IDs: []string{"b0", "b2"}},
		}, ports.Calls())
	})
}
