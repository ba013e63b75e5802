package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

// limitProcesses moves the agent to a cgroup that has no room for more processes and threads.
func limitProcesses(t *testing.T, a *Agent) {
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
		Eventually(t, within, "cgroup of the agent removed", func() error { return os.Remove(dir) })
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(a.PID())), 0))
	data, err := os.ReadFile(filepath.Join(dir, "pids.current"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), data, 0))
}

// A limitedProgram is the agent's program, in a cgroup with a limit of 100 processes and threads.
type limitedProgram struct{ path, cgroup string }

func newLimitedProgram(t *testing.T) limitedProgram {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/cgroup/pids", "e2e-agent-")
	if err != nil {
		Skip(t, "needs cgroup v1 with the controller pids: %v", err)
	}
	t.Cleanup(func() {
		Eventually(t, within, "cgroup of the agent removed", func() error {
			for _, pid := range strings.Fields(read(t, filepath.Join(dir, "cgroup.procs"))) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			RemoveCgroup(dir, true) // with those of the embedded runtime
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				return fmt.Errorf("%s is left: %v", dir, err)
			}
			return nil
		})
	})
	p := limitedProgram{path: filepath.Join(t.TempDir(), "minikubelet"), cgroup: dir}
	p.setLimit(t, "100")
	require.NoError(t, os.WriteFile(p.path, []byte("#!/bin/sh\necho $$ >"+dir+"/cgroup.procs\nexec "+
		MinikubeletBinary(t)+" \"$@\"\n"), 0o755))
	return p
}

func (p limitedProgram) setLimit(t *testing.T, max string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(p.cgroup, "pids.max"), []byte(max), 0))
}

// fill starts processes in the cgroup until it is full: a shell in it forks until it cannot, and then ends; the limit
// does not keep out what moves there.
func (p limitedProgram) fill(t *testing.T) {
	t.Helper()
	script := "echo $$ >" + p.cgroup + "/cgroup.procs; "
	_ = exec.Command("sh", "-c", script+"while sleep 1000 & do :; done").Run()
	last := exec.Command("sh", "-c", script+"exec sleep 1000")
	require.NoError(t, last.Start())
	t.Cleanup(func() { _ = last.Process.Kill(); _ = last.Wait() })
	Eventually(t, within, "cgroup full", func() error {
		if n := read(t, filepath.Join(p.cgroup, "pids.current")); n != "100" {
			return errors.New(n)
		}
		return nil
	})
}

// An agent that starts in a cgroup with a limit of processes, which other processes reach then: it starts and ends
// pods, and logs the limit once with what to do.
func TestAgentWithALimitOfProcesses(t *testing.T) {
	t.Parallel()
	Need(t)
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	limited := newLimitedProgram(t)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{Binary: limited.path,
		Args: []string{DevicePluginsDirFlag, filepath.Join(c.Dir, "agent/root/device-plugins")}})}
	limited.fill(t)

	pods := makePods(20, "limited", Grace(1), Main(Sh("c", Forever)))
	s.agent.Put(t, pods...)
	for _, pod := range pods {
		s.agent.Await(t, pod, 2*within, Running)
	}
	s.agent.Remove(t, pods[:10]...)
	s.agent.AwaitGone(t, 2*within, pods[:10]...)
	for _, pod := range pods[10:] {
		s.agent.Await(t, pod, within, Running)
	}
	assert.Equal(t, "100", read(t, filepath.Join(limited.cgroup, "pids.current")))
	assert.False(t, s.agent.Exited())
	const message = "The limit of processes of the agent is reached"
	Eventually(t, time.Minute, "the limit is logged", func() error {
		if n := strings.Count(read(t, s.agent.LogPath()), message); n != 1 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	assert.Contains(t, read(t, s.agent.LogPath()), "TasksMax=infinity")
}

// read returns the text of a file, "" if there is none.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return strings.TrimSpace(string(data))
}

// The limit of processes of the agent's own cgroup is set and reached when the agent runs. The agent starts no process
// for pods in a container runtime, but a program in Go ends if it can make no thread, of which an agent has enough in
// most cases. Then it is started again, as systemd does. No pod is restarted.
func TestAgentAtItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	warm := makePods(5, "warm", Main(Sh("c", Forever)))
	before := make([]*v1.Pod, len(warm))
	s.agent.Put(t, warm...)
	for i, pod := range warm {
		before[i] = s.agent.Await(t, pod, within, Running)
	}
	limitProcesses(t, s.agent)
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

// Pods that are processes of the agent cannot start at a limit of processes, which the agent itself survives. The
// reason is in their status, and they start when there is room.
func TestProcessAgentAtItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	limited := newLimitedProgram(t)
	a := StartProcessAgent(t, AgentOptions{Binary: limited.path})
	warm := makePods(5, "warm", Main(Sh("c", Forever)))
	a.Put(t, warm...)
	for _, pod := range warm {
		a.Await(t, pod, within, Running)
	}
	limited.fill(t)
	pod := MakePod("limited", Grace(1), Main(Sh("c", Forever)))
	a.Put(t, pod)
	a.Await(t, pod, within, func(pod *v1.Pod) error {
		if w := Status(pod, "c").State.Waiting; w == nil ||
			!strings.Contains(w.Message, "resource temporarily unavailable") {
			return fmt.Errorf("%+v", Status(pod, "c").State)
		}
		return nil
	})
	limited.setLimit(t, "max")
	a.Await(t, pod, within, Running)
	a.Remove(t, pod) // what supervises its container is in the cgroup of the agent
	a.AwaitGone(t, within, pod)
}
