package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// guestWithin is how long a test waits in a guest, whose processors are emulated.
const guestWithin = 3 * time.Minute

// inGuest skips a test that needs a machine of its own: see program guest.
func inGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
}

// burstable is a pod with a request and a limit.
func burstable(name string) *v1.Pod {
	pod := MakePod(name, Main(Sh("c", Forever)))
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")},
	}
	return pod
}

// Below systemd, the cgroups of a pod are slices with the names that kubelet gives them, and the
// container is a scope in it.
func TestGuestSystemd(t *testing.T) {
	inGuest(t)
	c := NewClusterWith(t, ClusterOptions{SystemdCgroup: true})
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: map[string]any{"cgroupRoot": "/"}})}
	pod := burstable("sliced")
	s.agent.Put(t, pod)
	uid := string(s.agent.Await(t, pod, guestWithin, Running).UID)
	want := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	s.assertCgroup(t, want, "cri-containerd-", ".scope")
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, guestWithin, pod)
}

// Without systemd, they are directories that go with the pod.
func TestGuestCgroups(t *testing.T) {
	inGuest(t)
	c := NewCluster(t)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Config: map[string]any{"cgroupRoot": "/"}})}
	pod := burstable("grouped")
	s.agent.Put(t, pod)
	uid := string(s.agent.Await(t, pod, guestWithin, Running).UID)
	want := "/kubepods/burstable/pod" + uid
	s.assertCgroup(t, want, "", "")
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, guestWithin, pod)
	require.Eventually(t, func() bool { return len(cgroupDirs(t, want)) == 0 }, guestWithin, time.Second, "cgroup removed: %s", want)
}

// assertCgroup asserts that the only container is in the cgroup of its pod, with its limit of memory,
// and that its own cgroup is named after its ID.
func (s *suite) assertCgroup(t *testing.T, pod, prefix, suffix string) {
	t.Helper()
	containers := s.Containers(t, "")
	require.Len(t, containers, 1)
	dir := filepath.Join("/sys/fs/cgroup", pod, prefix+containers[0].Id+suffix)
	for file, want := range map[string]string{"memory.max": "67108864", "cgroup.events": "populated 1\nfrozen 0"} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err, "the cgroups are %v", cgroupFiles(t))
		assert.Equal(t, want, strings.TrimSpace(string(got)), file)
	}
}
