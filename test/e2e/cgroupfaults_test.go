package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// hierarchies returns the directories that the cgroup has, or would have.
func hierarchies(t *testing.T, cgroup string) []string {
	t.Helper()
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return []string{mount + cgroup}
	}
	files, err := filepath.Glob(mount + "/*/cgroup.procs")
	require.NoError(t, err)
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file)+cgroup)
	}
	return dirs
}

// An agent that was killed after it had made the cgroup of a pod, and before the sandbox: the next one gives
// the cgroup its limits and runs the pod in it. The cgroup of a pod that was removed meanwhile is removed.
func TestCgroupWithoutSandbox(t *testing.T) {
	t.Parallel()
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Config: map[string]any{"podPidsLimit": 1000}})}
	pod := MakePod("half", Main(Sh("c", Forever)))
	pod.UID = podUID(1)
	of := func(i int) string { return c.CgroupRoot() + "/kubepods/besteffort/pod" + string(podUID(i)) }
	for _, i := range []int{1, 2} {
		for _, dir := range hierarchies(t, of(i)) {
			require.NoError(t, os.MkdirAll(dir, 0o755))
		}
	}
	s.agent.Put(t, pod)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	s.agent.Await(t, pod, within, Running)
	assert.Equal(t, of(1), podCgroupOf(t, c, pod))
	limits := 0
	for _, dir := range cgroupDirs(t, of(1)) {
		if data, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil {
			assert.Equal(t, "1000", strings.TrimSpace(string(data)))
			limits++
		}
	}
	assert.Equal(t, 1, limits)
	Eventually(t, 2*within, "cgroup of the pod that is gone removed", func() error {
		if left := cgroupDirs(t, of(2)); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// limitProcesses moves the agent to a cgroup that has no room for more processes and threads than more. The
// returned function takes the limit away.
func limitProcesses(t *testing.T, a *Agent, more int) (lift func()) {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/pids", "e2e-agent-"+strconv.Itoa(a.PID()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		Skip(t, "needs cgroup v1 with the controller pids: %v", err)
	}
	pid := a.PID()
	t.Cleanup(func() {
		if a.PID() == pid {
			a.Kill(t)
		}
		Eventually(t, within, "cgroup of the agent removed", func() error {
			_ = os.Remove(filepath.Join(dir, "kubeletkit")) // of its own runtime
			return os.Remove(dir)
		})
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(a.PID())), 0))
	data, err := os.ReadFile(filepath.Join(dir, "pids.current"))
	require.NoError(t, err)
	threads, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	set := func(value string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte(value), 0)) }
	set(strconv.Itoa(threads + more))
	return func() { set("max") }
}

// The limit of processes of the agent's own cgroup is reached. The agent starts no process for pods in a
// container runtime, but a program in Go ends if it can make no thread, of which an agent has enough in most
// cases. Then it is started again, as systemd does. No pod is restarted.
func TestAgentAtItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	warm := makePods(5, "warm", Main(Sh("c", Forever)))
	before := make([]*v1.Pod, len(warm))
	s.agent.Put(t, warm...)
	for i, pod := range warm {
		before[i] = s.agent.Await(t, pod, within, Running)
	}
	limitProcesses(t, s.agent, 0)
	pods := makePods(5, "limited", Grace(1), Main(Sh("c", Forever)))
	s.agent.Put(t, pods...)
	Eventually(t, within, "pods run, or the agent has ended", func() error {
		for _, pod := range pods {
			p, err := s.agent.Pod(pod)
			if err == nil {
				err = Running(p)
			}
			if err != nil && !s.agent.Exited() {
				return err
			}
		}
		return nil
	})
	if s.agent.Exited() {
		t.Log("the agent has ended")
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
	}
	for _, pod := range pods {
		s.agent.Await(t, pod, within, Running)
	}
	for i, pod := range warm {
		adopted(t, before[i], s.agent.Await(t, pod, within, Running))
	}
}

// Pods that are processes of the agent cannot start at that limit. The reason is in their status, and they
// start when there is room.
func TestProcessAgentAtItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	warm := makePods(5, "warm", Main(Sh("c", Forever)))
	a.Put(t, warm...)
	for _, pod := range warm {
		a.Await(t, pod, within, Running)
	}
	lift := limitProcesses(t, a, 0)
	pod := MakePod("limited", Grace(1), Main(Sh("c", Forever)))
	a.Put(t, pod)
	a.Await(t, pod, within, func(pod *v1.Pod) error {
		if w := Status(pod, "c").State.Waiting; w == nil || !strings.Contains(w.Message, "resource temporarily unavailable") {
			return fmt.Errorf("%+v", Status(pod, "c").State)
		}
		return nil
	})
	lift()
	a.Await(t, pod, within, Running)
	a.Remove(t, pod) // what supervises its container is in the cgroup of the agent
	a.AwaitGone(t, within, pod)
}
