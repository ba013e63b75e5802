package e2e

import (
	"maps"
	"os"
	"os/exec"
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
	testPodCgroup(t, NewClusterWith(t, ClusterOptions{SystemdCgroup: true}),
		func(uid, container string) (string, string) {
			return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" +
				strings.ReplaceAll(uid, "-", "_") +
				".slice", "cri-containerd-" + container + ".scope"
		})
}

// Without systemd, they are directories.
func TestGuestCgroups(t *testing.T) {
	inGuest(t)
	testPodCgroup(t, NewCluster(t), func(uid, container string) (string, string) {
		return "/kubepods/burstable/pod" + uid, container
	})
}

// A kubelet with its defaults, below systemd, and this agent take over the pods of each other.
func TestGuestSystemdKubelet(t *testing.T) {
	inGuest(t)
	c := NewClusterWith(t, ClusterOptions{SystemdCgroup: true})
	config := map[string]any{"cgroupRoot": "", "oomScoreAdj": nil, "failSwapOn": nil}
	defaults := maps.Clone(config)
	for _, name := range []string{"cgroupsPerQOS", "enforceNodeAllocatable", "cgroupDriver", "makeIPTablesUtilChains",
		"localStorageCapacityIsolation", "evictionHard", "imageGCHighThresholdPercent"} {
		defaults[name] = nil
	}
	cgroup := testTakeover(t, c, guestWithin, AgentOptions{Config: config}, AgentOptions{Config: defaults})
	assert.True(t, strings.HasPrefix(cgroup, "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"),
		cgroup)
}

// guestSpecs are specs of the node tests that need to lower the oom_score_adj. Others are run by hand.
var guestSpecs = []string{`Validate OOM score adjustments`}

// These specs run below systemd, with swap.
func TestGuestSystemdNodeSpecs(t *testing.T) {
	inGuest(t)
	out, err := exec.Command("swapon", os.Getenv("KUBELETKIT_GUEST_SWAP")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		out, err := exec.Command("swapoff", os.Getenv("KUBELETKIT_GUEST_SWAP")).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	})
	testNodeSpecs(t, ClusterOptions{SystemdCgroup: true, BuiltRunc: true, OOMScore: -999},
		map[string]any{"oomScoreAdj": nil}, 5, guestSpecs...)
}

// testPodCgroup asserts the cgroups of a pod and of its only container, and their limits. They go with the pod.
func testPodCgroup(t *testing.T, c *Cluster, names func(uid, container string) (pod, ctr string)) {
	s := &suite{Cluster: c,
		agent: c.StartAgent(t, AgentOptions{Config: map[string]any{"cgroupRoot": "/", "podPidsLimit": 1000,
			"memoryReservationPolicy": "TieredReservation", "memoryThrottlingFactor": 0.9}})}
	pod := burstable("grouped")
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("32Mi")
	s.agent.Put(t, pod)
	uid := string(s.agent.Await(t, pod, guestWithin, Running).UID)
	containers := s.Containers(t, "")
	require.Len(t, containers, 1)
	of, in := names(uid, containers[0].Id)
	// The weight of 100m is that of 102 shares. memory.high is below 90 % of the way from request to limit.
	for file, want := range map[string]string{
		"cpu.weight": "4", "memory.max": "67108864", "pids.max": "1000",
		in + "/cpu.weight": "4", in + "/memory.max": "67108864", in + "/cgroup.events": "populated 1\nfrozen 0",
		"memory.low": "33554432", "memory.high": "max", in + "/memory.low": "33554432",
		in + "/memory.high": "63750144",
	} {
		got, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", of, file))
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(got)), file)
	}
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, guestWithin, pod)
	require.Eventually(t, func() bool { return len(cgroupDirs(t, of)) == 0 }, guestWithin, time.Second,
		"cgroup removed: %s", of)
}
