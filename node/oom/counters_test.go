package oom_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/oom/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// startWithoutLog runs a watcher that cannot open the log, with counters.
func startWithoutLog(t *testing.T, c *fake.Counters) *node {
	return start(t, func(o *oom.Options) {
		o.Open = func() (oom.Log, error) { return nil, errors.New("open /dev/kmsg: no such file or directory") }
		o.Counters = c.Open
		o.PodCgroup = func(pod *v1.Pod) string { return "/kubepods/burstable/pod" + string(pod.UID) }
	})
}

// ran is a container that started at a time.
func ran(name, id string, at time.Time) runtime.ContainerStatus {
	c := running(name, id)
	c.StartedAt = at
	return c
}

// Without the log, kills are found by the counts of cgroups, also of a child whose container ends later.
func TestKillsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c fake.Counters
		before := time.Now()
		time.Sleep(time.Second)
		n := startWithoutLog(t, &c)
		require.Len(t, n.lines, 1, "it is said once")
		assert.Contains(t, n.lines[0], "open /dev/kmsg: no such file or directory")
		time.Sleep(time.Second)

		// Kills before the agent started were those of an earlier agent, except in containers that started after it.
		c.Set(id("a"), oom.Count{Kills: 2, Limit: 2})
		c.Set(id("b"), oom.Count{Kills: 1})
		c.Set(id("c"), oom.Count{})
		web := testpod.New("web", testpod.Containers("main", "side", "job"))
		status := observed(web, ran("main", id("a"), before), ran("side", id("b"), time.Now()),
			ran("job", id("c"), before))
		require.NoError(t, n.Running(t.Context(), web, status))
		assert.Equal(t, []string{"OOMKilling: The kernel killed a process of container side: a memory limit is " +
			"reached, or the node is out of memory"}, n.messages())
		assert.Equal(t, []string{id("a"), id("b"), id("c")}, c.Watched())

		c.Set(id("a"), oom.Count{Kills: 5, Limit: 3})
		synctest.Wait()
		require.Len(t, n.node.Events(), 2)
		assert.Equal(t, "The kernel killed 3 processes of container main: the memory limit of the container is reached",
			n.node.Events()[1].Message)
		assert.Equal(t, "spec.containers{main}", n.node.Events()[1].FieldPath)
		assert.Equal(t, "3 processes; the memory limit of the container is reached", n.node.Records()[1].Message)
		assert.Equal(t, []string{"web/side false", "web/main false", "web/main false", "web/main false"}, n.killed())
		cgroup := "/kubepods/burstable/pod" + string(web.UID) + "/"
		assert.EqualValues(t, 3, n.Events(cgroup+id("a")))
		assert.EqualValues(t, 1, n.Events(cgroup+id("b")))
		assert.Zero(t, n.Events(cgroup+id("c")))

		c.End(id("a"))
		synctest.Wait()
		assert.Equal(t, []string{id("b"), id("c")}, c.Watched())
		assert.Equal(t, []string{"OOMKilled", "Error"},
			n.reasons(t, observed(web, exited("main", id("a"), 3, "Error"), exited("job", id("c"), 137, "Error"))))
		require.NoError(t, n.Running(t.Context(), web, observed(web, exited("main", id("a"), 3, "Error"),
			running("job", id("c")))))
		assert.Equal(t, []string{id("c")}, c.Watched(), "the other one runs no more")
		require.NoError(t, n.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(web)}))
		assert.Empty(t, c.Watched())
		assert.Len(t, n.lines, 1)
	})
}

// The inspection reads the counts itself: it may be faster than the report of the kernel.
func TestInspectionReadsTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c fake.Counters
		n := startWithoutLog(t, &c)
		c.Set(id("a"), oom.Count{})
		web := testpod.New("web", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		c.Set(id("a"), oom.Count{Kills: 1})
		assert.Equal(t, []string{"OOMKilled"}, n.reasons(t, observed(web, exited("main", id("a"), 1, "Error"))))
		synctest.Wait()
		assert.Len(t, n.node.Events(), 1)
	})
}

// A log that fails is followed by counts, of the pods that are known by then.
func TestLogFailsAndCountsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c fake.Counters
		n := start(t, func(o *oom.Options) {
			o.Counters, o.PodCgroup = c.Open, func(*v1.Pod) string { return "/kubepods/podx" }
		})
		c.Set(id("a"), oom.Count{Kills: 1})
		web := testpod.New("web", testpod.Containers("main"))
		require.NoError(t, n.Running(t.Context(), web, observed(web, running("main", id("a")))))
		assert.Empty(t, c.Watched(), "there is a log")
		n.kill(web, id("a"), 7)
		synctest.Wait()
		n.log.Fail(errors.New("no such device"))
		synctest.Wait()
		assert.Equal(t, []string{id("a")}, c.Watched())
		assert.Len(t, n.messages(), 1, "the log had that kill")
		c.Set(id("a"), oom.Count{Kills: 2})
		synctest.Wait()
		assert.Len(t, n.messages(), 2)
		assert.Len(t, n.lines, 1)
	})
}

// The limits that were reached are counted by their cgroups, as cAdvisor does.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		web := testpod.New("web", testpod.Containers("main"))
		n.kill(web, id("a"), 7)
		n.kill(web, id("a"), 8)
		n.log.Add("Out of memory: Killed process 8 (x) total-vm:1kB")
		synctest.Wait()
		assert.EqualValues(t, 2, n.Events("/kubepods/burstable/pod"+string(web.UID)+"/"+id("a")))
		assert.EqualValues(t, 1, n.Events("/"))
		for range 2000 {
			n.log.Add("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/"+
				time.Now().String()+",task_memcg=/x,task=hog,pid=9,uid=0",
				"Memory cgroup out of memory: Killed process 9 (hog) total-vm:1kB")
			time.Sleep(time.Millisecond)
		}
		assert.Zero(t, n.Events("/"), "what is kept is bounded")
	})
}
