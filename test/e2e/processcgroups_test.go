package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// guestEpsilon is the error of a share of the CPU in a guest, whose processors are emulated.
const guestEpsilon = 0.4

func TestProcessCgroups(t *testing.T) {
	Need(t, "taskset")
	a := StartProcessAgent(t, AgentOptions{Config: map[string]any{"podPidsLimit": 100}})
	testProcessCgroups(t, a, 0.1, "/kubeletkit/")
}

func TestGuestProcessCgroups(t *testing.T) {
	inGuest(t)
	a := StartProcessAgent(t, AgentOptions{Config: map[string]any{"podPidsLimit": 100}})
	testProcessCgroups(t, a, guestEpsilon, "0::/kubeletkit/")
}

// An agent in a scope of systemd has its pods at the root of the hierarchy: a service whose own cgroup had
// them could not be started again.
func TestGuestSystemdProcessCgroups(t *testing.T) {
	inGuest(t)
	scope := filepath.Join(t.TempDir(), "scope")
	require.NoError(t,
		os.WriteFile(scope, []byte("#!/bin/sh\nexec systemd-run --scope --quiet --property=Delegate=yes "+
			MinikubeletBinary(t)+` "$@"`+"\n"), 0o700))
	a := StartProcessAgent(t, AgentOptions{Binary: scope, Config: map[string]any{"podPidsLimit": 100}})
	testProcessCgroups(t, a, guestEpsilon, "0::/kubeletkit/")
}

// A node with nothing installed defends itself: a pod that forks without end, and one that takes all memory
// reach their limits, and other pods run on, with CPU as they request it. The cgroups of the pods are below the
// root of the runtime, not below that of a kubelet, which would kill them, and go with the pods.
func testProcessCgroups(t *testing.T, a *Agent, epsilon float64, root string) {
	cpu := func(name, request string) *v1.Pod {
		pod := MakePod(name, Main(Sh("c", "exec taskset -c 0 sh -c 'while :; do :; done'")))
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
		return pod
	}
	good := MakePod("good", Main(Sh("c", "while sleep 0.1; do :; done")))
	bomb := MakePod("bomb", Grace(0), Main(Sh("c", "bomb() { while :; do bomb & done; }; bomb 2>/dev/null & while "+
		":; do :; done")))
	hog := MakePod("hog", Policy(v1.RestartPolicyNever), Main(Sh("c", `x=a; while :; do x="$x$x"; done`)))
	hog.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}
	a.Put(t, good)
	before := a.Await(t, good, guestWithin, Running)
	a.Put(t, bomb, hog)
	ended := a.Await(t, hog, guestWithin, Phase(v1.PodFailed))
	assert.Equal(t, "OOMKilled", Status(ended, "c").State.Terminated.Reason)

	a.Await(t, bomb, guestWithin, Running)

	// The cgroup of a container is in that of its pod.
	cgroup := cgroupOf(t, a, bomb)
	assert.Contains(t, cgroup, root)
	assert.NotContains(t, cgroup, "kubepods")
	pids := ""
	for _, dir := range cgroupDirs(t, filepath.Dir(cgroup[strings.LastIndex(cgroup, ":")+1:])) {
		if data, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil {
			assert.Equal(t, "100", strings.TrimSpace(string(data)))
			pids = dir
		}
	}
	require.NotEmpty(t, pids)
	Eventually(t, guestWithin, "the limit of processes reached", func() error {
		data, err := os.ReadFile(filepath.Join(pids, "pids.current"))
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		assert.LessOrEqual(t, n, 100)
		if err == nil && n < 90 {
			err = fmt.Errorf("%d processes", n)
		}
		return err
	})
	a.Remove(t, bomb, hog)
	a.AwaitGone(t, guestWithin, bomb, hog)
	assert.NoDirExists(t, pids)

	small, large := cpu("small", "100m"), cpu("large", "900m")
	a.Put(t, small, large)
	a.Await(t, small, guestWithin, Running)
	a.Await(t, large, guestWithin, Running)
	used := func(pod *v1.Pod) float64 {
		resp, err := a.Runtime.Runtime.PodSandboxStats(t.Context(),
			&cri.PodSandboxStatsRequest{PodSandboxId: a.Runtime.Sandboxes(t, FullName(pod))[0].Id})
		require.NoError(t, err)
		return float64(resp.GetStats().GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue())
	}
	s, l := used(small), used(large)
	time.Sleep(10 * time.Second)
	s, l = used(small)-s, used(large)-l
	assert.InEpsilon(t, 9, l/s, epsilon, "CPU of a pod with 900m by that of one with 100m")

	// The next agent finds the pods, and their cgroups go with them.
	last := cgroupOf(t, a, small)
	a.Kill(t)
	a.Start(t)
	a.WaitHealthy(t)
	after := a.Await(t, good, guestWithin, Running)
	adopted(t, before, after)
	a.Remove(t, small, large, good)
	a.AwaitGone(t, guestWithin, small, large, good)
	assert.Empty(t, cgroupDirs(t, filepath.Dir(last[strings.LastIndex(last, ":")+1:])))
}

// cgroupOf returns the line of /proc/PID/cgroup that has the processes of the pod's container: with version 2
// the only one.
func cgroupOf(t *testing.T, a *Agent, pod *v1.Pod) string {
	t.Helper()
	pid := a.Runtime.PID(t, a.Runtime.Newest(t, FullName(pod), "c").Id)
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, ":pids:") || strings.HasPrefix(line, "0::/") &&
			!strings.Contains(string(data), ":pids:") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no cgroup for pids in %s", data)
	return ""
}
