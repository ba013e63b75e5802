package e2e

import (
	"fmt"
	"os"
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

// These tests are about an agent without a container runtime: its containers are
// processes of the host, so scripts see the host's files. In a manifest $$$$ stands for a
// shell's $$.

// born is a process, told by when it began from others that get its pid.
type born struct{ pid, at string }

// bornOf describes the process, which may have been reaped or not.
func bornOf(pid int) (_ born, alive bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(data), ") ") // no name here has a parenthesis
	fields := strings.Fields(rest)
	if err != nil || !ok || fields[0] == "Z" {
		return born{}, false
	}
	return born{strconv.Itoa(pid), fields[19]}, true
}

// pidIn waits until a script has written a pid to the file.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	Eventually(t, within, "pid in "+file, func() error {
		data, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscanln(string(data), &pid)
		}
		return err
	})
	return pid
}

// An agent that is killed is followed by one that finds the processes as they were,
// and what became of those that have ended.
func TestProcessAgentKilled(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	dir := t.TempDir()
	// What runs a second time stays.
	script := func(name, end string) string {
		return fmt.Sprintf("if [ -e %[1]s/%[2]s ]; then exec sleep 2147483647; fi; touch %[1]s/%[2]s; while [ ! -e "+
			"%[1]s/go ]; do sleep 0.1; done; %[3]s", dir, name, end)
	}
	type ending struct {
		end     string
		policy  v1.RestartPolicy
		code    int32
		phase   v1.PodPhase
		restart bool
	}
	endings := map[string]ending{
		"never-0":      {"exit 0", v1.RestartPolicyNever, 0, v1.PodSucceeded, false},
		"never-1":      {"exit 1", v1.RestartPolicyNever, 1, v1.PodFailed, false},
		"never-3":      {"exit 3", v1.RestartPolicyNever, 3, v1.PodFailed, false},
		"never-42":     {"exit 42", v1.RestartPolicyNever, 42, v1.PodFailed, false},
		"never-255":    {"exit 255", v1.RestartPolicyNever, 255, v1.PodFailed, false},
		"never-kill":   {"kill -KILL $$$$", v1.RestartPolicyNever, 137, v1.PodFailed, false},
		"never-term":   {"kill -TERM $$$$", v1.RestartPolicyNever, 143, v1.PodFailed, false},
		"never-segv":   {"kill -SEGV $$$$", v1.RestartPolicyNever, 139, v1.PodFailed, false},
		"failure-0":    {"exit 0", v1.RestartPolicyOnFailure, 0, v1.PodSucceeded, false},
		"failure-7":    {"exit 7", v1.RestartPolicyOnFailure, 7, v1.PodRunning, true},
		"failure-kill": {"kill -KILL $$$$", v1.RestartPolicyOnFailure, 137, v1.PodRunning, true},
		"always-0":     {"exit 0", v1.RestartPolicyAlways, 0, v1.PodRunning, true},
		"always-9":     {"exit 9", v1.RestartPolicyAlways, 9, v1.PodRunning, true},
		"always-term":  {"kill -TERM $$$$", v1.RestartPolicyAlways, 143, v1.PodRunning, true},
	}
	steady := makePods(6, "steady", Main(Sh("c", "exec sleep 2147483647")))
	pods := append([]*v1.Pod(nil), steady...)
	for name, e := range endings {
		pods = append(pods, MakePod(name, Policy(e.policy), Main(Sh("c", script(name, e.end)))))
	}
	require.Len(t, pods, 20)
	a.Put(t, pods...)
	before, process := map[string]*v1.Pod{}, map[string]born{}
	for _, pod := range pods {
		before[pod.Name] = a.Await(t, pod, within, Running)
		pid := a.Runtime.PID(t, a.Runtime.Newest(t, FullName(pod), "c").Id)
		var alive bool
		process[pod.Name], alive = bornOf(pid)
		require.True(t, alive, pod.Name)
	}
	lives := func(name string) bool {
		pid, _ := strconv.Atoi(process[name].pid)
		now, alive := bornOf(pid)
		return alive && now == process[name]
	}

	a.Kill(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	Eventually(t, within, "processes ended while the agent is away", func() error {
		for name := range endings {
			if lives(name) {
				return fmt.Errorf("that of %s goes on", name)
			}
		}
		return nil
	})
	time.Sleep(time.Second + 100*time.Millisecond) // times in a status have whole seconds
	back := time.Now()
	a.Start(t)
	a.WaitHealthy(t)

	for _, pod := range steady {
		after := a.Await(t, pod, within, Running, Ready(true))
		adopted(t, before[pod.Name], after)
		assert.True(t, lives(pod.Name), "%s is the same process", pod.Name)
	}
	for name, e := range endings {
		pod := MakePod(name)
		if e.restart {
			after := a.Await(t, pod, within, Restarts("c", 1), Running)
			last := Status(after, "c").LastTerminationState.Terminated
			if assert.NotNil(t, last, name) {
				assert.Equal(t, e.code, last.ExitCode, name)
				assert.True(t, last.FinishedAt.Time.Before(back), "%s ended at %v", name, last.FinishedAt)
			}
			assert.EqualValues(t, 1, Status(after, "c").RestartCount, name)
			continue
		}
		after := a.Await(t, pod, within, Phase(e.phase), Terminated("c", e.code))
		st := Status(after, "c")
		assert.Zero(t, st.RestartCount, name)
		assert.Equal(t, Status(before[name], "c").ContainerID, st.ContainerID, name)
		assert.Equal(t, Status(before[name], "c").State.Running.StartedAt.Time, st.State.Terminated.StartedAt.Time,
			name)
		assert.True(t, st.State.Terminated.FinishedAt.Time.Before(back), "%s ended at %v", name,
			st.State.Terminated.FinishedAt)
	}
	a.Remove(t, pods...)
	a.AwaitGone(t, within, pods...)
	for _, pod := range pods {
		assert.False(t, lives(pod.Name), "%s is gone", pod.Name)
	}
	a.AwaitNoPodDirs(t, within)
}

// Nothing of a pod outlives it: neither a grandchild that ignores SIGTERM, nor one that
// has left its session, its parent and its environment, too.
func TestProcessGrandchildren(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	for name, main := range map[string]string{"polite": Forever, "stubborn": Stubborn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grace := 3 * time.Second
			if name == "polite" {
				grace = within
			}
			dir := t.TempDir()
			const ignorant = `trap "" TERM HUP; echo $$$$ > %s; while :; do sleep 1; done`
			script := fmt.Sprintf("sh -c '"+ignorant+"' & (setsid env -i /bin/sh -c '"+ignorant+"' &); ", dir+"/child",
				dir+"/stray") + main
			pod := MakePod(name, Grace(int64(grace/time.Second)), Main(Sh("c", script)))
			a.Put(t, pod)
			a.Await(t, pod, within, Running)
			id := a.Runtime.Newest(t, FullName(pod), "c").Id
			pids := []int{pidIn(t, dir+"/child"), pidIn(t, dir+"/stray")}
			for _, pid := range pids {
				require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
			}
			begin := time.Now()
			a.Remove(t, pod)
			Eventually(t, within, "both processes gone", func() error {
				for _, pid := range pids {
					if _, alive := bornOf(pid); alive {
						return fmt.Errorf("%d goes on", pid)
					}
				}
				return nil
			})
			took := time.Since(begin)
			if name == "stubborn" {
				assert.GreaterOrEqual(t, took, grace, "the grace period is the command's")
				assert.Less(t, took, grace+10*time.Second)
			} else {
				assert.Less(t, took, grace, "they do not get what the command does not need of it")
			}
			a.AwaitGone(t, within, pod)
			assert.Empty(t, ProcessesOf(id))
		})
	}
}

// A container that forks when it is killed, by chains of processes that each end when they have started the next,
// in its session and out of it, ends with its pod, and the other pods go on. What it is allowed to have is
// limited for its user (RLIMIT_NPROC), since that holds on every machine, also where no cgroup can be made; it comes
// near that limit only if it gets out of hand, since at the limit chains end by themselves. Nobody else is that user,
// which is another one for each run of these tests, so all its processes are the container's.
func TestProcessForkBomb(t *testing.T) {
	t.Parallel()
	Need(t, "prlimit")
	a := StartProcessAgent(t, AgentOptions{})
	const limit, sleepers, chains = 500, 60, 6
	uid := uint32(4_200_000 + os.Getpid())
	require.Empty(t, ProcessesOfUser(uid))
	other := MakePod("other", Main(Sh("c", "while :; do sleep 0.1; done")))
	bomb := Sh("c", "")
	// They sleep so that other tests get something of the processor, too. A third of them
	// is in another session at each step.
	bomb.Command = []string{"prlimit", fmt.Sprintf("--nproc=%d:%[1]d", limit), "sh", "-c", fmt.Sprintf(`
		trap '' TERM HUP
		i=0
		while [ $i -lt %d ]; do sleep 2147483647 & setsid sleep 2147483647 & i=$((i+1)); done
		chain='chain() { sleep 0.05; chain & }; chain'
		export leave='sleep 0.05; setsid sh -c "$leave" &'
		i=0
		while [ $i -lt %d ]; do sh -c "$chain" & setsid sh -c "$chain" & sh -c "$leave" & i=$((i+1)); done
		exec sleep 2147483647`, sleepers/2, chains/3)}
	bomb.SecurityContext = &v1.SecurityContext{RunAsUser: ptr(int64(uid)), RunAsGroup: ptr(int64(uid))}
	forks := MakePod("forks", Grace(1), Main(bomb))
	a.Put(t, other, forks)
	before := a.Await(t, other, within, Running)
	a.Await(t, forks, within, Running)
	seen := map[int]bool{}
	Eventually(t, within, "each chain makes steps", func() error {
		for _, pid := range ProcessesOfUser(uid) {
			seen[pid] = true
		}
		if len(seen) < sleepers+10*chains {
			return fmt.Errorf("%d processes until now", len(seen))
		}
		return nil
	})
	assert.Zero(t, Status(a.Await(t, forks, within, Running), "c").RestartCount)

	begin := time.Now()
	a.Remove(t, forks)
	a.AwaitGone(t, within, forks)
	assert.GreaterOrEqual(t, time.Since(begin), time.Second, "its command ignores SIGTERM")
	assert.Empty(t, ProcessesOfUser(uid))
	adopted(t, before, a.Await(t, other, within, Running))
	again := MakePod("again", Main(Sh("c", Forever)))
	a.Put(t, again)
	a.Await(t, again, within, Running)
}
