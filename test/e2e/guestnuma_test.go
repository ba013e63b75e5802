package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// Exclusive CPUs with cgroup v2.
func TestGuestExclusiveCPUs(t *testing.T) {
	inGuest(t)
	testExclusiveCPUs(t, guestWithin)
}

// Two memory nodes have the CPUs 0 and 1, and 2 and 3; the disk of the guest is said to be near to the second one.
// Containers have the CPUs, the memory and the disk of one node, or are refused.
func TestGuestNUMA(t *testing.T) {
	inGuest(t)
	c := NewCluster(t)
	c.MakeCgroup(t)
	settings := staticCPUs()
	maps.Copy(settings, map[string]any{
		"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static",
		"kubeReserved": map[string]string{"memory": "99Mi"}, "evictionHard": map[string]string{"memory.available": "1Mi"},
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "100Mi"}}},
	})
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: settings})}
	plugin := &nullPlugin{
		dir: filepath.Join(s.agent.Root, "device-plugins"), path: os.Getenv("KUBELETKIT_GUEST_DISK"),
		list: []*api.Device{{ID: "disk", Health: api.Healthy,
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}}},
	}
	plugin.start(t)
	Eventually(t, guestWithin, "the plugin is registered", func() error {
		_, err := os.Stat(filepath.Join(plugin.dir, "kubelet_internal_checkpoint"))
		return err
	})
	with := func(pod *v1.Pod, name v1.ResourceName, amount string) *v1.Pod {
		pod.Spec.Containers[0].Resources.Limits[name] = resource.MustParse(amount) // the requests are the same map
		return pod
	}
	// placed waits until the pod runs on the CPUs and with the memory of the nodes.
	placed := func(pod *v1.Pod, cpus, nodes string) {
		t.Helper()
		s.agent.Await(t, pod, guestWithin, Running)
		dir := filepath.Join("/sys/fs/cgroup", podCgroupOf(t, c, pod), c.Newest(t, FullName(pod), "c").Id)
		for file, want := range map[string]string{"cpuset.cpus": cpus, "cpuset.mems": nodes, "cpu.max": "max 100000"} {
			Eventually(t, guestWithin, file+" of pod "+pod.Name, func() error {
				data, err := os.ReadFile(filepath.Join(dir, file))
				if got := strings.TrimSpace(string(data)); err == nil && got != want {
					err = fmt.Errorf("%q instead of %q", got, want)
				}
				return err
			})
		}
	}
	refused := func(pod *v1.Pod) {
		t.Helper()
		s.agent.Put(t, pod)
		got := s.agent.Await(t, pod, guestWithin, Phase(v1.PodFailed))
		assert.Equal(t, "TopologyAffinityError", got.Status.Reason, pod.Name)
	}

	refused(with(exclusive("much-memory"), v1.ResourceMemory, "1200Mi")) // the two have it together
	disk, near := with(exclusive("disk"), nulls, "1"), exclusive("near")
	s.agent.Put(t, disk)
	placed(disk, "2", "1")
	assert.Equal(t, "1\n", s.Exec(t, FullName(disk), "c", "sh", "-c", "head -c 1 /dev/null-disk | wc -c"))
	refused(with(exclusive("two-cpus"), v1.ResourceCPU, "2")) // each node has one
	s.agent.Put(t, near)
	placed(near, "1", "0")

	s.agent.Kill(t)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	placed(disk, "2", "1")
	placed(near, "1", "0")
	s.agent.Remove(t, disk)
	s.agent.AwaitGone(t, guestWithin, disk)
	both := with(exclusive("both"), v1.ResourceCPU, "2")
	s.agent.Put(t, both)
	placed(both, "2-3", "1")
}
