package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// What the agent says of the runtime's events.
const (
	eventsStand  = "The runtime's event stream is established"
	eventsBroken = "The runtime's event stream is broken"
	eventsNone   = "The runtime has no event stream"
)

// said counts how often the text is in the agent's log.
func (s *suite) said(t *testing.T, text string) int {
	t.Helper()
	log, err := os.ReadFile(s.agent.LogPath())
	require.NoError(t, err)
	return strings.Count(string(log), text)
}

// awaitSaid waits until the text is in the agent's log that often, or more.
func (s *suite) awaitSaid(t *testing.T, text string, times int) {
	t.Helper()
	Eventually(t, within, "the agent says: "+text, func() error {
		if got := s.said(t, text); got < times {
			return fmt.Errorf("%d times, not %d", got, times)
		}
		return nil
	})
}

// load is a suite with pods that write down each of their starts.
type load struct {
	*suite
	notes string // has a directory for each pod, where it writes

	// The pods that come and go: those that are wanted, the oldest first, and those
	// that are not any more.
	wanted, gone []*v1.Pod
}

// mark is in the command line of the pod's processes, and of no other's.
func (l *load) mark(name string) string { return filepath.Base(l.Dir) + "/" + name + ";" }

func (l *load) pod(t *testing.T, name, script string, options ...Option) *v1.Pod {
	t.Helper()
	dir := filepath.Join(l.notes, name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	script = fmt.Sprintf(": %s echo start >> /shared/log; %s", l.mark(name), script)
	return MakePod(name, append(options, Main(Sh("c", script)), Shared(dir))...)
}

func (l *load) pods(t *testing.T, n int, name, script string, options ...Option) []*v1.Pod {
	t.Helper()
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = l.pod(t, fmt.Sprintf("%s-%d", name, i), script, options...)
	}
	l.agent.Put(t, pods...)
	return pods
}

// starts is how often the pod's container was started.
func (l *load) starts(pod *v1.Pod) int { return len(logLines(filepath.Join(l.notes, pod.Name))) }

// comeAndGo adds and removes pods for a while.
func (l *load) comeAndGo(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		pod := l.pod(t, fmt.Sprintf("guest-%d", len(l.wanted)+len(l.gone)), Forever)
		l.agent.Put(t, pod)
		if l.wanted = append(l.wanted, pod); len(l.wanted) > 6 {
			l.agent.Remove(t, l.wanted[0])
			l.gone, l.wanted = append(l.gone, l.wanted[0]), l.wanted[1:]
		}
	}
}

// killer returns a function that kills the processes of the pods, for when the
// runtime cannot be asked for them.
func (l *load) killer(t *testing.T, pods []*v1.Pod) func() {
	t.Helper()
	var pids []int
	for _, pod := range pods {
		pids = append(pids, l.PID(t, l.Newest(t, FullName(pod), "c").Id))
	}
	return func() {
		for _, pid := range pids {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

// containerd is killed twice under load: while containers crash, are killed and end,
// and pods come and go. Each that is to run runs once then, and every exit was seen.
func TestRuntimeKilledUnderLoad(t *testing.T) {
	t.Parallel()
	const kills = 2
	l := &load{suite: newSuite(t, AgentOptions{}), notes: t.TempDir()}
	steady := l.pods(t, 8, "steady", Forever)
	crashing := l.pods(t, 6, "crashing", "[ ! -e /shared/calm ] || { "+Forever+"; }; sleep 0.3; exit 1")
	early, late := l.pods(t, 3, "early", Forever), l.pods(t, 3, "late", Forever)
	leaving := l.pods(t, 2*kills, "leaving", "while [ ! -e /shared/go ]; do sleep 0.1; done; exit 7",
		Policy(v1.RestartPolicyNever))
	before := l.awaitAll(t, steady, Running)
	l.awaitAll(t, crashing, Restarts("c", 1))
	l.awaitAll(t, leaving, Running)

	for round := range kills {
		l.awaitSaid(t, eventsStand, round+1)
		earlyBefore, lateBefore := l.awaitAll(t, early, Running), l.awaitAll(t, late, Running)
		killEarly, killLate := l.killer(t, early), l.killer(t, late)
		l.comeAndGo(t, 2*time.Second)
		killEarly()
		l.Cluster.Kill(t)

		killLate()
		left := leaving[2*round : 2*round+2]
		for _, pod := range left {
			require.NoError(t, os.WriteFile(filepath.Join(l.notes, pod.Name, "go"), nil, 0o644))
		}
		l.comeAndGo(t, 1500*time.Millisecond)
		l.awaitSaid(t, eventsBroken, round+1)
		_, err := l.agent.Pods()
		require.NoError(t, err, "the agent answers while its runtime is away")

		l.Cluster.Start(t)
		l.comeAndGo(t, time.Second)
		for i, pod := range early {
			l.agent.Await(t, pod, 2*within, Running, Restarts("c", Status(earlyBefore[i], "c").RestartCount+1))
		}
		for i, pod := range late {
			was := Status(lateBefore[i], "c")
			now := Status(l.agent.Await(t, pod, 2*within, Running, Restarts("c", was.RestartCount+1)), "c")
			assert.Equal(t, was.RestartCount+1, now.RestartCount, pod.Name)
			if end := now.LastTerminationState.Terminated; assert.NotNil(t, end, pod.Name) {
				assert.Equal(t, was.ContainerID, end.ContainerID, pod.Name)
				assert.Contains(t, []int32{137, 255}, end.ExitCode, pod.Name)
			}
		}
		for _, pod := range left {
			end := Status(l.agent.Await(t, pod, 2*within, Phase(v1.PodFailed)), "c").State.Terminated
			if assert.NotNil(t, end, pod.Name) {
				assert.Contains(t, []int32{7, 255}, end.ExitCode, pod.Name)
			}
		}
	}
	l.awaitSaid(t, eventsStand, kills+1)
	l.agent.WaitHealthy(t)
	assert.Zero(t, l.said(t, eventsNone))

	for _, pod := range crashing {
		require.NoError(t, os.WriteFile(filepath.Join(l.notes, pod.Name, "calm"), nil, 0o644))
	}
	stay := slices.Concat(steady, crashing, early, late, l.wanted)
	l.awaitOnce(t, stay)
	for i, after := range l.awaitAll(t, steady, Running, Ready(true)) {
		adopted(t, before[i], after)
	}
	Eventually(t, within, "the starts are what the restart counts say", func() error {
		for _, pod := range stay {
			got, err := l.agent.Pod(pod)
			if err != nil {
				return err
			}
			// An instance whose start was cut off when containerd was killed has not run,
			// but counts. None has run that does not count.
			starts, instances := l.starts(pod), int(Status(got, "c").RestartCount)+1
			if starts > instances || starts < instances-kills {
				return fmt.Errorf("%s was started %d times, of %d instances", pod.Name, starts, instances)
			}
		}
		return nil
	})
	for _, pod := range leaving {
		assert.Equal(t, 1, l.starts(pod), pod.Name)
		assert.Len(t, l.Containers(t, FullName(pod)), 1, pod.Name)
	}
	l.agent.AwaitGone(t, 2*within, l.gone...)
	l.agent.AwaitNoPodDirs(t, within)
	t.Logf("%d pods came and went; crashing-0 was started %d times", len(l.gone), l.starts(crashing[0]))
}

// awaitOnce waits until each of the pods has one sandbox, one container and one
// process, and nobody else has any.
func (l *load) awaitOnce(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	l.awaitAll(t, pods, Running)
	Eventually(t, 2*within, "each pod runs once", func() error {
		sandboxes, containers := map[string]int{}, map[string]int{}
		for _, sb := range l.Sandboxes(t, "") {
			if sb.State == cri.PodSandboxState_SANDBOX_READY {
				sandboxes[sb.Metadata.Name]++
			}
		}
		for _, ctr := range l.Containers(t, "") {
			if ctr.State != cri.ContainerState_CONTAINER_EXITED {
				containers[ctr.Labels["io.kubernetes.pod.name"]]++
			}
		}
		for _, pod := range pods {
			name := FullName(pod)
			if got := [3]int{sandboxes[name], containers[name], len(ProcessesWith(l.mark(pod.Name)))}; got != [3]int{1,
				1, 1} {
				return fmt.Errorf("%s has %d sandboxes, containers, processes", pod.Name, got)
			}
		}
		if len(sandboxes) != len(pods) || len(containers) != len(pods) {
			return fmt.Errorf("%d pods have sandboxes, %d containers, not %d", len(sandboxes), len(containers),
				len(pods))
		}
		return nil
	})
}
