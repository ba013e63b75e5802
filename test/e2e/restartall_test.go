package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// watcher is a container that exits with 42 when the file exists, and removes it before. Then all containers of its pod
// are restarted.
func watcher(file string) v1.Container {
	c := Sh("watcher", fmt.Sprintf("while [ ! -e %[1]s ]; do sleep 0.1; done; rm %[1]s; exit 42", file))
	c.RestartPolicy = ptr(v1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values: []int32{42}},
	}}
	return c
}

// restartAllPod has one of each kind of container. Each line of the file log in shared is a start of one.
func restartAllPod(name, shared string, options ...Option) *v1.Pod {
	say := func(name, script string) v1.Container {
		return Sh(name, fmt.Sprintf("echo %s >> %s/log; %s", name, shared, script))
	}
	probed := say("main", Forever)
	probed.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 1}
	probed.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c",
		"echo hook >> " + shared + "/log"}}}}
	return MakePod(name, append([]Option{
		Policy(v1.RestartPolicyNever), Grace(40), Init(say("init", "true")), Sidecar(say("side", Forever)),
		Main(probed, say("once", "true"), watcher(shared+"/go")),
	}, options...)...)
}

func allRestarted(n int32) Condition {
	return func(pod *v1.Pod) error {
		for _, c := range []string{"init", "side", "main", "once", "watcher"} {
			if got := Status(pod, c).RestartCount; got != n {
				return fmt.Errorf("container %s has %d restarts, not %d", c, got, n)
			}
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.AllContainersRestarting {
				if c.Status != v1.ConditionFalse {
					return fmt.Errorf("%s is %s: %s", c.Type, c.Status, c.Reason)
				}
				return nil
			}
		}
		return fmt.Errorf("no condition %s", v1.AllContainersRestarting)
	}
}

// A container whose rule says so has all containers restarted, in the same sandbox and with the same volumes. preStop
// hooks do not run, and the grace period is not waited for.
func testRestartAll(t *testing.T, s *suite) {
	dir := t.TempDir()
	pod := s.put(t, restartAllPod("restart-all", "/shared", Shared(dir),
		Mounted("empty", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})))
	name := FullName(pod)
	before := s.agent.Await(t, pod, within, theseRun("main", "side", "watcher"), allRestarted(0))
	s.Exec(t, name, "main", "touch", "/empty/kept")
	box := s.Sandboxes(t, name)
	require.Len(t, box, 1)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	after := s.agent.Await(t, pod, within, theseRun("main", "side", "watcher"), allRestarted(1))
	assert.Equal(t, v1.PodRunning, after.Status.Phase)
	assert.Equal(t, before.Status.PodIP, after.Status.PodIP)
	assert.Equal(t, before.Status.StartTime, after.Status.StartTime)
	assert.Equal(t, box[0].Id, s.Sandboxes(t, name)[0].Id)
	s.Exec(t, name, "main", "test", "-e", "/empty/kept")
	lines := logLines(dir)
	require.Len(t, lines, 8, "%v", lines)
	assert.Equal(t, []string{"init", "side"}, lines[:2])
	assert.Equal(t, []string{"init", "side"}, lines[4:6], "it begins with the init containers, and no hook has run")
	for _, container := range []string{"init", "main"} {
		assert.FileExists(t, filepath.Join(s.agent.Logs, fmt.Sprintf("default_%s_%s", name, after.UID), container,
			"0.log"), "logs stay")
	}

	// The second time it waits.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	s.agent.Await(t, pod, within, func(pod *v1.Pod) error {
		if w := Status(pod, "watcher").State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" {
			return fmt.Errorf("%+v", Status(pod, "watcher").State)
		}
		return nil
	})
	s.agent.Await(t, pod, within, theseRun("main", "side", "watcher"), allRestarted(2))
}

// theseRun waits until these containers run.
func theseRun(containers ...string) Condition {
	return func(pod *v1.Pod) error {
		for _, c := range containers {
			if Status(pod, c).State.Running == nil {
				return fmt.Errorf("container %s: %+v", c, Status(pod, c).State)
			}
		}
		return nil
	}
}

// Without a container runtime, all containers are restarted as well.
func TestProcessesAreAllRestarted(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	dir := t.TempDir()
	pod := restartAllPod("restart-all", dir)
	a.Put(t, pod)
	a.Await(t, pod, within, theseRun("main", "side", "watcher"), allRestarted(0))
	for n := range int32(2) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		a.Await(t, pod, within, theseRun("main", "side", "watcher"), allRestarted(n+1))
	}
	lines := logLines(dir)
	require.Len(t, lines, 12, "%v", lines)
	assert.Equal(t, []string{"init", "side"}, lines[8:10])
}
