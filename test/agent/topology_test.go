package agent_test

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
	"github.com/kubeletkit/kubeletkit/node/devices"
	devicesfake "github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	numafake "github.com/kubeletkit/kubeletkit/node/placement/numa/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// startPlaced starts an agent that places containers on a machine of two memory nodes with four CPUs and 8 GiB each,
// and devices.
func startPlaced(t *testing.T, dir string, rt *fake.Runtime, policy string, opts topology.Options,
	providers ...devices.Provider) *node {
	t.Helper()
	machine := numafake.Machine{Nodes: 2, Cores: 4, Memory: 8 << 30}.Numa()
	var err error
	opts.Policy, err = topology.NewPolicy(policy, machine, topology.PolicyOptions{})
	require.NoError(t, err)
	exclusive, err := cpus.New(machine, filepath.Join(dir, cpus.CheckpointName), rt,
		cpus.Options{ReservedCount: 1, WholePods: true})
	require.NoError(t, err)
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	mem, err := memory.New(filepath.Join(dir, memory.FileName), machine, memory.Options{
		Reserved: []memory.Reservation{{Node: 0, Limits: reserved}}, NodeReserved: reserved, WholePods: true,
	})
	require.NoError(t, err)
	return startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
		dev, err := devices.New(filepath.Join(dir, devices.CheckpointName), devices.Options{Providers: providers})
		require.NoError(t, err)
		manager, err := topology.New(opts)
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
		ports.OnPrefer = func(context.Context, devices.PreferRequest) ([]string,
			error) {
			return []string{"a0", "b2", "a1"}, nil
		}
		nics := devicesfake.New(nic, onNode(1, "n")...)
		n := startPlaced(t, t.TempDir(), fake.New(fake.Options{}), topology.PolicySingleNUMANode, topology.Options{},
			ports, nics)
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

// A pod that runs goes on when the agent is started again with a policy that would not have placed it so. New pods are
// refused.
func TestChangeOfTheTopologyPolicy(t *testing.T) {
	const port = "example.com/port"
	for _, scope := range []topology.Scope{topology.ScopeContainer, topology.ScopePod} {
		t.Run(string(scope), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt, ports := fake.New(fake.Options{}), devicesfake.New(port,
					append(onNode(0, "a0", "a1"), onNode(1, "b0", "b1", "b2")...)...)
				n := startPlaced(t, dir, rt, topology.PolicyNone, topology.Options{Scope: scope}, ports)
				web := guaranteed("web", "5", "9Gi", map[v1.ResourceName]string{port: "3"})
				init, side := *web.Spec.Containers[0].DeepCopy(), *web.Spec.Containers[0].DeepCopy()
				init.Name, side.Name, side.RestartPolicy = "init", "side", new(v1.ContainerRestartPolicyAlways)
				side.Resources = v1.ResourceRequirements{}
				web.Spec.InitContainers = []v1.Container{init, side}
				n.after(time.Second)
				n.source.Set(web)
				n.after(time.Second)
				rt.Exit(fake.Target{Pod: "web", Container: "init"}, 0)
				got := n.after(10 * time.Second)["web"].Status
				require.Equal(t, v1.PodRunning, got.Phase)
				require.NotNil(t, got.ContainerStatuses[0].State.Running)
				id := got.ContainerStatuses[0].ContainerID

				for _, policy := range []string{topology.PolicySingleNUMANode, topology.PolicyRestricted} {
					n.stop(t)
					n = startPlaced(t, dir, rt, policy, topology.Options{Scope: scope}, ports)
					n.source.Set(web)
					got = n.after(time.Minute)["web"].Status
					assert.Equal(t, v1.PodRunning, got.Phase, "%s: %s", got.Reason, got.Message)
					assert.Equal(t, id, got.ContainerStatuses[0].ContainerID)
				}
				n.stop(t)
				n = startPlaced(t, dir, rt, topology.PolicySingleNUMANode, topology.Options{Scope: scope}, ports)
				defer n.stop(t)
				n.source.Set(web)
				n.after(time.Second) // the provider has delivered its devices
				n.source.Set(web, guaranteed("more", "1", "1Gi", map[v1.ResourceName]string{port: "4"}))
				pods := n.after(time.Minute)
				assert.Equal(t, v1.PodRunning, pods["web"].Status.Phase)
				assert.Equal(t, v1.PodFailed, pods["more"].Status.Phase)
				assert.Equal(t, topology.ReasonAffinity, pods["more"].Status.Reason)
				assert.Contains(t, pods["more"].Status.Message,
					"Resources cannot be allocated with Topology locality: ")
			})
		})
	}
}

// The containers of a pod with resources as a whole have parts of its CPUs, its memory node, and devices near them. They
// keep these while the agent is started again.
func TestPodWithResourcesAsAWhole(t *testing.T) {
	const port = "example.com/port"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, ports := fake.New(fake.Options{}), devicesfake.New(port, append(onNode(0, "a"), onNode(1, "b")...)...)
		start := func() *node {
			return startPlaced(t, dir, rt, topology.PolicySingleNUMANode, topology.Options{Scope: topology.ScopePod}, ports)
		}
		n := start()
		web := guaranteed("web", "1", "1Gi", map[v1.ResourceName]string{port: "1"})
		logs := *web.Spec.Containers[0].DeepCopy()
		logs.Name, logs.Resources = "logs", v1.ResourceRequirements{}
		web.Spec.Containers = append(web.Spec.Containers, logs)
		whole := guaranteed("whole", "4", "2Gi", nil).Spec.Containers[0].Resources
		web.Spec.Resources = &whole
		n.after(time.Second)
		n.source.Set(web)
		require.Equal(t, v1.PodRunning, n.after(10 * time.Second)["web"].Status.Phase)
		running := func(container string) fake.Instance {
			t.Helper()
			list := rt.Running(fake.Target{Pod: "web", Container: container})
			require.Len(t, list, 1)
			return list[0]
		}
		before := map[string]fake.Instance{"main": running("main"), "logs": running("logs")}
		assert.Equal(t, "4", before["main"].CPUSet, "of node 1, which has four that are not reserved")
		assert.Equal(t, "5-7", before["logs"].CPUSet)
		for _, c := range before {
			assert.Equal(t, "1", c.MemorySet)
		}
		assert.Equal(t, []string{"b"}, ports.Calls()[0].IDs)

		for range 2 {
			n.stop(t)
			n = start()
			n.source.Set(web)
			assert.Equal(t, v1.PodRunning, n.after(time.Minute)["web"].Status.Phase)
			for name, was := range before {
				assert.Equal(t, was, running(name))
			}
		}
		n.source.Set(makePod("other"))
		n.after(time.Minute)
		assert.Equal(t, "0-7", rt.Running(fake.Target{Pod: "other"})[0].CPUSet)
		n.stop(t)
	})
}
