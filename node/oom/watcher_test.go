package oom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/oom/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a watcher on a log in memory, and what it has reported.
type node struct {
	*oom.Watcher
	log fake.Log

	node *nodefake.Node

	lines []string
}

// start runs a watcher until the test ends.
func start(t *testing.T, change func(*oom.Options)) *node {
	n := &node{}
	n.node = &nodefake.Node{Log: funcr.New(func(_, args string) { n.lines = append(n.lines, args) }, funcr.Options{})}
	opts := oom.Options{Open: n.log.Open}
	if change != nil {
		change(&opts)
	}
	var err error
	n.Watcher, err = oom.New(opts)
	require.NoError(t, err)
	require.NoError(t, n.Join(n.node))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, n.Run(ctx))
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return n
}

func (n *node) killed() (all []string) {
	for _, m := range n.node.Measurements() {
		k := m.(oom.Killed)
		for range k.Processes {
			all = append(all, fmt.Sprint(k.Pod.Name, "/", k.Container, " ", k.Global))
		}
	}
	return all
}

func (n *node) messages() (all []string) {
	for _, e := range n.node.Events() {
		all = append(all, e.Reason+": "+e.Message)
	}
	return all
}

// kill logs a kill in a container, at the limit of the container.
func (n *node) kill(pod *v1.Pod, id string, pid int) {
	cgroup := "/kubepods/burstable/pod" + string(pod.UID) + "/" + id
	n.log.Add(
		fmt.Sprintf(
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=hog,pid=%d,uid=0", cgroup, cgroup, pid),
		fmt.Sprintf("Memory cgroup out of memory: Killed process %d (hog) total-vm:1kB", pid),
	)
}

// inspector returns the same status each time.
type inspector struct{ status *runtime.PodStatus }

func (i *inspector) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return i.status, nil
}

func id(digit string) string { return strings.Repeat(digit, 64) }

func observed(pod *v1.Pod, containers ...runtime.ContainerStatus) *runtime.PodStatus {
	return &runtime.PodStatus{PodRef: runtime.RefOf(pod), Containers: containers}
}

func running(name, id string) runtime.ContainerStatus {
	return runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{Type: "test", ID: id},
		Name: name, State: runtime.ContainerRunning}}
}

func exited(name, id string, code int32, reason string) runtime.ContainerStatus {
	c := running(name, id)
	c.State, c.ExitCode, c.Reason, c.FinishedAt = runtime.ContainerExited, code, reason, time.Now()
	return c
}

// reasons returns the reasons of the containers in an inspection of the pod.
func (n *node) reasons(t *testing.T, status *runtime.PodStatus) (all []string) {
	before := *status
	got, err := n.Inspector(&inspector{status}).InspectPod(t.Context(), status.PodRef)
	require.NoError(t, err)
	assert.Equal(t, before, *status, "the status of the runtime may be shared")
	for _, c := range got.Containers {
		all = append(all, c.Reason)
	}
	return all
}

// A kill in a container is an event and a record of its pod, and the reason of the end of that container alone.
func TestContainerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web := testpod.New("web", testpod.Containers("main", "side"))
		require.NoError(t,
			n.Running(t.Context(), web, observed(web, running("main", id("a")), running("side", id("b")))))
		n.kill(web, id("a"), 7)
		synctest.Wait()
		assert.Equal(t, []runtime.Event{{
			Pod: runtime.RefOf(web), FieldPath: "spec.containers{main}", Type: v1.EventTypeWarning,
			Reason:  "OOMKilling",
			Message: "The kernel killed process hog (pid 7) of container main: the memory limit of the container is reached",
		}}, n.node.Events())
		assert.Equal(t, []runtime.Record{{
			Pod: runtime.RefOf(web), Stage: runtime.StageSeen, Kind: runtime.KindOOMKill, Container: "main",
			Message: "hog (pid 7); the memory limit of the container is reached",
		}}, n.node.Records())
		assert.Equal(t, []string{"web/main false"}, n.killed())

		// The first process was killed, or ended because of its child.
		assert.Equal(t, []string{"OOMKilled", "Error"},
			n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"), exited("side", id("b"), 137, "Error"))))
		assert.Equal(t, []string{"OOMKilled"}, n.reasons(t, observed(web, exited("main", id("a"), 1, "Error"))))
		assert.Equal(t, []string{"Completed"}, n.reasons(t, observed(web, exited("main", id("a"), 0, "Completed"))))
		assert.Len(t, n.node.Events(), 1)
	})
}

// If the container lives on, its end long after the kill has another cause.
func TestContainerEndsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web := testpod.New("web", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		n.kill(web, id("a"), 7)
		synctest.Wait()
		time.Sleep(oom.KillWindow)
		assert.Equal(t, []string{"OOMKilled"}, n.reasons(t, observed(web, exited("main", id("a"), 2, "Error"))))
		time.Sleep(time.Second)
		assert.Equal(t, []string{"Error"}, n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"))))
	})
}

// stalled is a log whose Wait returns only when it ends, so that Run reads nothing.
type stalled struct{ *fake.Log }

func (s stalled) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// The inspection that shows the end of a container reads the log itself, also if the agent has not seen the container
// run.
func TestInspectionReadsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log fake.Log
		n := start(t, func(o *oom.Options) { o.Open = func() (oom.Log, error) { return stalled{&log}, nil } })
		web := testpod.New("web", testpod.Containers("main"))
		status := observed(web, exited("main", id("a"), 137, "Error"))
		assert.Equal(t, []string{"Error"}, n.reasons(t, status))
		cgroup := "/kubepods/pod" + string(web.UID) + "/" + id("a")
		log.Add("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/pod"+
			string(web.UID)+",task_memcg="+cgroup+",task=hog,pid=7,uid=0",
			"Memory cgroup out of memory: Killed process 7 (hog) total-vm:1kB")
		for range 2 {
			assert.Equal(t, []string{"OOMKilled"}, n.reasons(t, status))
			assert.Equal(t, []string{"OOMKilling: The kernel killed process hog (pid 7) of container main: the " +
				"memory limit of the pod is reached"}, n.messages())
		}
	})
}

// The machine is out of memory: kubelet's event of the node, and one of the pod.
func TestMachineIsOutOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web := testpod.New("web", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		n.log.Add(
			"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/burstable/pod"+string(web.UID)+"/"+id("a")+",task=hog,pid=7,uid=0",
			"Out of memory: Killed process 7 (hog) total-vm:1kB",
			"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/x.service,task=x,pid=8,uid=0",
			"Out of memory: Killed process 8 (x) total-vm:1kB")
		synctest.Wait()
		assert.Equal(t, []string{
			"SystemOOM: System OOM encountered, victim process: hog, pid: 7",
			"OOMKilling: The kernel killed process hog (pid 7) of container main: the node is out of memory",
			"SystemOOM: System OOM encountered, victim process: x, pid: 8",
		}, n.messages())
		assert.Zero(t, n.node.Events()[0].Pod, "it is about the node")
		assert.Equal(t, []string{"web/main true", "/ true"}, n.killed())
	})
}

// A container in which processes are killed all the time has few events.
func TestManyKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web, other := testpod.New("web", testpod.Containers("main")), testpod.New("other", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		require.NoError(t, n.Running(t.Context(), other, observed(other, running("main", id("b")))))
		for pid := range 10_000 {
			n.kill(web, id("a"), pid+1)
		}
		n.kill(other, id("b"), 7)
		synctest.Wait()
		assert.Len(t, n.node.Events(), 6)
		assert.Len(t, n.node.Records(), 6)
		assert.Len(t, n.killed(), 10_001)
		time.Sleep(time.Minute)
		n.kill(web, id("a"), 5)
		synctest.Wait()
		all := n.messages()
		assert.True(t, strings.HasSuffix(all[len(all)-1], " (9995 more were killed since the last event)"),
			all[len(all)-1])
	})
}

// If the kernel leaves out the record with the cgroup, the one about the whole group names it.
func TestGroupIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web := testpod.New("web", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		n.log.Add("Memory cgroup out of memory: Killed process 4194305 (hog) total-vm:1kB",
			"Tasks in /kubepods/burstable/pod"+string(web.UID)+"/"+id("a")+
				" are going to be killed due to memory.oom.group set",
			"Memory cgroup out of memory: Killed process 4194306 (sh) total-vm:1kB")
		synctest.Wait()
		assert.Equal(t, []string{"OOMKilling: The kernel killed process hog (pid 4194305) of container main: a " +
			"memory limit is reached"}, n.messages())
		assert.Equal(t, []string{"OOMKilled"}, n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"))))
	})
}

// Kills in containers of others are no kills of ours: the log is that of the machine.
func TestKillsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web, foreign := testpod.New("web", testpod.Containers("main")),
			testpod.New("foreign", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		n.kill(foreign, id("b"), 7)
		n.log.Add("Memory cgroup out of memory: Killed process 9 (hog) total-vm:1kB") // no cgroup is known
		n.log.AddRecord([]byte("14,1,1,-;Out of memory: Killed process 7 (hog) total-vm:1kB"))
		n.log.AddRecord(make([]byte, 1<<20))
		synctest.Wait()
		assert.Empty(t, n.node.Events())
		assert.Equal(t, []string{"Error"}, n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"))))

		require.NoError(t, n.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(web)}))
		n.kill(web, id("a"), 7)
		synctest.Wait()
		assert.Empty(t, n.node.Events(), "the pod is gone")
	})
}

// Without the log the agent goes on, and one line says so.
func TestNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(o *oom.Options) {
			o.Open = func() (oom.Log, error) { return nil, errors.New("open /dev/kmsg: no such file or directory") }
		})
		web := testpod.New("web", testpod.Containers("main"))
		assert.Equal(t, []string{"Error"}, n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"))))
		require.Len(t, n.lines, 1)
		assert.Contains(t, n.lines[0], "open /dev/kmsg: no such file or directory")
		assert.ErrorIs(t, n.Run(t.Context()), oom.ErrAlreadyRunning)
	})
}

// A log that fails is closed.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		n.log.Fail(errors.New("no such device"))
		synctest.Wait()
		assert.True(t, n.log.Closed())
		require.Len(t, n.lines, 1)
		assert.Contains(t, n.lines[0], "no such device")
		web := testpod.New("web", testpod.Containers("main"))
		assert.Equal(t, []string{"Error"}, n.reasons(t, observed(web, exited("main", id("a"), 137, "Error"))))
	})
}

// Everything may be called at the same time, and the receivers may call the watcher.
func TestConcurrency(t *testing.T) {
	var log fake.Log
	web := testpod.New("web", testpod.Containers("main"))
	var w *oom.Watcher
	w, err := oom.New(oom.Options{Open: log.Open})
	require.NoError(t, err)
	require.NoError(t, w.Join(&nodefake.Node{Do: func(string) {
		_ = w.Running(t.Context(), web, observed(web, running("main", id("a"))))
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, w.Run(ctx)) })
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for pid := range 200 {
				log.Add(fmt.Sprintf("Out of memory: Killed process %d (hog) total-vm:1kB", pid+1))
				_, _ = w.Inspector(&inspector{observed(web, exited("main", id("a"), 137, "Error"))}).InspectPod(ctx,
					runtime.RefOf(web))
				if i == 0 {
					_ = w.Gone(ctx, lifecycle.GoneRequest{Pod: runtime.RefOf(web)})
				}
			}
		})
	}
	load.Wait()
	cancel()
	wg.Wait()
	assert.True(t, log.Closed())
}
