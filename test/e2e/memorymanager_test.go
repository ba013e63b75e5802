package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// guaranteed gives the container CPU and memory of a Guaranteed pod.
func guaranteed(c v1.Container) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	c.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return c
}

// TestMemoryManager gives a container memory of a NUMA node. A kubelet takes over the state, and the agent takes it
// back; nothing is restarted, and nothing is given twice.
func TestMemoryManager(t *testing.T) {
	t.Parallel()
	Need(t)
	c := NewCluster(t)
	c.MakeCgroup(t) // a kubelet does not start without it
	c.Preload(t, "pause:1", "busybox:1")
	settings := map[string]any{
		"memoryManagerPolicy": "Static", "kubeReserved": map[string]string{"memory": "199Mi"}, "evictionHard": map[string]string{"memory.available": "1Mi"},
		"cgroupsPerQOS": true, "enforceNodeAllocatable": []string{"pods"},
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "200Mi"}}},
	}
	agent := c.NewAgent(t, AgentOptions{Config: settings})
	kubelet := c.NewAgent(t, AgentOptions{Config: settings, Binary: KubeletBinary(t)})
	pod := MakePod("pinned", Init(guaranteed(Sh("init", "true"))), Main(guaranteed(Sh("c", Forever))))
	pod.UID = podUID(0)
	held := func(a *Agent) map[string]any {
		data, err := os.ReadFile(filepath.Join(a.Root, "memory_manager_state"))
		require.NoError(t, err)
		var state struct{ Entries map[string]map[string]any }
		require.NoError(t, json.Unmarshal(data, &state))
		return state.Entries[string(pod.UID)]
	}
	agent.Start(t)
	agent.WaitHealthy(t)
	agent.Put(t, pod)
	agent.Await(t, pod, within, Running)
	id := c.Newest(t, FullName(pod), "c").Id
	assert.Contains(t, held(agent), "c")
	set := strings.Fields(c.Exec(t, FullName(pod), "c", "grep", "Mems_allowed_list", "/proc/self/status"))
	require.Len(t, set, 2)
	assert.Equal(t, "0", set[1])
	out, err := exec.Command(MinikubeletBinary(t), "top", "--devices", "--root-dir", agent.Root).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Regexp(t, `pinned-\S+ +c +memory +64Mi +0`, string(out))
	agent.Stop(t)

	kubelet.Start(t)
	kubelet.WaitHealthy(t)
	kubelet.Await(t, pod, within, Running)
	kubelet.Stop(t)
	assert.Contains(t, held(kubelet), "c")

	agent.Start(t)
	agent.WaitHealthy(t)
	agent.Await(t, pod, within, Running)
	assert.Equal(t, id, c.Newest(t, FullName(pod), "c").Id, "nothing was restarted")
	agent.Remove(t, pod)
	agent.AwaitGone(t, within, pod)
	require.Eventually(t, func() bool { return len(held(agent)) == 0 }, within, within/100)
}
