package agent_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/dra"
	drafake "github.com/kubeletkit/kubeletkit/node/dra/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	numafake "github.com/kubeletkit/kubeletkit/node/placement/numa/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent with exclusive CPUs, memory nodes and resource claims, on a machine with two nodes. While a pod with CPUs of
// its own runs, the others keep off these; when it has ended, all CPUs are shared again, and its claim is unprepared.
func TestExclusiveCPUsOfAnAgent(t *testing.T) {
	machine := numafake.Machine{Nodes: 2, Cores: 4, Threads: 2, Memory: 8 << 30}.Numa()
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	claims, driver := drafake.NewClaims(), drafake.NewDriver("gpu.example.com")
	configure := func(n *agenttest.Node, opts *kubeletkit.Options) {
		state := func(name string) string { return filepath.Join(opts.RootDir, name) }
		c, err := cpus.New(machine, state(cpus.CheckpointName), n.Runtime, cpus.Options{Reserved: cpuset.New(0, 8)})
		require.NoError(t, err)
		m, err := memory.New(state(memory.FileName), machine, memory.Options{
			Reserved:     []memory.Reservation{{Node: 0, Limits: reserved}},
			NodeReserved: reserved,
		})
		require.NoError(t, err)
		policy, err := topology.NewPolicy(topology.PolicySingleNUMANode, machine, topology.PolicyOptions{})
		require.NoError(t, err)
		placement, err := topology.New(topology.Options{Policy: policy})
		require.NoError(t, err)
		d, err := dra.New(opts.RootDir, claims, dra.Options{Slices: claims})
		require.NoError(t, err)
		d.Add(driver.Name(), driver).SetConnected(true)
		opts.Join = []lifecycle.Component{c, m, placement, d}
	}
	agenttest.Run(t, agenttest.Options{Configure: configure}, func(t *testing.T, n *agenttest.Node) {
		container := func(pod string) fake.Instance {
			list := n.Runtime.Running(fake.Target{Pod: pod})
			require.Len(t, list, 1, pod)
			return list[0]
		}
		web, database, greedy := makePod("web"), makePod("database"), makePod("greedy")
		guaranteed := func(pod *v1.Pod, cpu, memory string) {
			list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
				v1.ResourceMemory: resource.MustParse(memory)}
			pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
		}
		guaranteed(database, "4", "6Gi")
		guaranteed(greedy, "10", "1Gi")
		drafake.Use(database, "gpu")
		claims.Set(drafake.Allocated(database.Namespace, "gpu", driver.Name(), database))

		n.Source.Set(web)
		n.Sleep(time.Second)
		assert.Equal(t, "0-15", container("web").CPUSet)
		assert.Empty(t, container("web").CDIDevices)

		n.Source.Set(web, database, greedy)
		n.Sleep(time.Minute)
		assert.Equal(t, "1-2,9-10", container("database").CPUSet, "whole cores of one node")
		assert.Equal(t, "0", container("database").MemorySet)
		assert.Equal(t, []string{"gpu.example.com/device=gpu"}, container("database").CDIDevices)
		assert.Equal(t, "0,3-8,11-15", container("web").CPUSet, "the container that runs keeps off these")
		i := slices.IndexFunc(n.Pods(), func(p *v1.Pod) bool { return p.Name == greedy.Name })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, topology.ReasonAffinity, n.Pods()[i].Status.Reason)

		n.Runtime.Exit(fake.Target{Pod: "web"}, 1)
		n.Sleep(time.Minute)
		assert.Equal(t, "0,3-8,11-15", container("web").CPUSet)

		n.Source.Set(web)
		n.Sleep(time.Hour)
		assert.Equal(t, "0-15", container("web").CPUSet)
		assert.Len(t, driver.Calls(), 2)
		assert.Empty(t, driver.Prepared())
		assert.Equal(t, []string{""}, claims.RemovedSlices())
	})
}
