package cri_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// crowd are pods that run, each of a container that exits within its grace period of 30 s.
type crowd struct {
	t    *testing.T
	svc  *service
	rt   *cri.Runtime
	pods []*syncer
	ends sync.WaitGroup
}

// newCrowd starts n pods. The calls that stop and remove something take a while, and those
// that stop a container end when it has exited.
func newCrowd(t *testing.T, n int, exits time.Duration) *crowd {
	c := &crowd{t: t, svc: newService(t, "app:1")}
	c.rt = c.svc.client(cri.Options{MaxParallelEnds: 8})
	c.svc.Script(fake.Target{}, fake.Behavior{StopDelay: exits})
	for i := range n {
		pod := podOf("a")
		pod.Name, pod.UID = fmt.Sprintf("p%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		s := newSyncer(t, c.rt, pod)
		s.mustSync()
		c.pods = append(c.pods, s)
	}
	for _, call := range []string{"StopPodSandbox", "RemovePodSandbox"} {
		c.svc.Inject(fake.Fault{Call: call, Delay: 300 * time.Millisecond})
	}
	c.svc.calls()
	return c
}

// end kills the pods and removes their sandboxes, side by side.
func (c *crowd) end(pods ...*syncer) {
	for _, s := range pods {
		c.ends.Go(func() {
			status := s.status()
			if assert.NoError(c.t, c.rt.KillPod(c.t.Context(), runtime.PodKill{Pod: s.pod, Status: status})) {
				assert.NoError(c.t, c.rt.RemoveSandbox(c.t.Context(), status.Sandboxes[0].ID))
			}
		})
	}
}

// began returns when the calls of a method began, counted from the first one that changes
// something.
func (c *crowd) began(method string) []time.Duration {
	var (
		first time.Time
		at    []time.Duration
	)
	for _, call := range c.svc.Calls(fake.Target{}) {
		if !call.Changes() {
			continue
		}
		if first.IsZero() {
			first = call.Began
		}
		if call.Method == method {
			at = append(at, call.Began.Sub(first))
		}
	}
	return at
}

func TestEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 40, 200*time.Millisecond)
		c.end(c.pods...)
		c.ends.Wait()
		containers, sandboxes, removals := c.began("StopContainer"), c.began("StopPodSandbox"), c.began("RemovePodSandbox")
		assert.Len(t, containers, 40)
		assert.Len(t, sandboxes, 40)
		assert.Len(t, removals, 40)
		// A place may be free before the next call arrives, for as many calls as there are places.
		slices.Sort(sandboxes)
		slices.Sort(removals)
		assert.LessOrEqual(t, slices.Max(containers), sandboxes[8])
		assert.LessOrEqual(t, slices.Max(sandboxes), removals[8])
	})
}

func TestEndsOfContainersThatIgnoreTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, time.Hour)
		c.end(c.pods...)
		c.ends.Wait()
		containers := c.began("StopContainer")
		assert.Len(t, containers, 100)
		assert.Less(t, slices.Max(containers), 2*time.Second)
		for _, call := range c.svc.Calls(fake.Target{}) {
			if call.Method == "StopContainer" {
				assert.Equal(t, 30*time.Second, call.Grace, "the grace period begins when the stop is sent")
			}
		}
	})
}

// The commands of preStop hooks of many pods do not start all at once. A hook that takes long
// does not keep its place, and none has less time because it waited.
func TestPreStopHooksOfManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 40, 0)
		const takes = 29900 * time.Millisecond // nearly all of the grace period
		c.svc.Inject(fake.Fault{Call: "ExecSync", Delay: takes})
		for _, s := range c.pods {
			s.pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sleep"}}}}
		}
		began := time.Now()
		c.end(c.pods...)
		c.ends.Wait()
		var hooks []time.Duration
		for _, call := range c.svc.Calls(fake.Target{}) {
			if call.Method == "ExecSync" {
				hooks = append(hooks, call.Began.Sub(began))
				assert.NoError(t, call.Err)
			}
		}
		require.Len(t, hooks, 40)
		slices.Sort(hooks)
		assert.Greater(t, hooks[8], hooks[7], "8 at once")
		assert.Less(t, hooks[39], 3*time.Second)
	})
}

// TestGraceOfSidecarsBeginsWithTheStop has pods whose containers wait at the gate. Their
// sidecars still have their turn after them, with what is left of the grace period.
func TestGraceOfSidecarsBeginsWithTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		pod := podOf("a")
		pod.Spec.InitContainers = []v1.Container{sidecarNamed("s1")}
		pod.Spec.TerminationGracePeriodSeconds = seconds(10)
		svc.endSlowly(map[string]time.Duration{"a": 4 * time.Second})
		rt := svc.client(cri.Options{MaxParallelEnds: 1})
		s := newSyncer(t, rt, pod)
		s.mustSync()
		s.mustSync()
		// Removals that hang keep the only place for 3 s each, and came before.
		svc.Inject(fake.Fault{Call: "ContainerStatus", Delay: time.Hour, Target: fake.Target{Container: "none"}})
		other := podOf("none")
		other.Name, other.UID = "other", "uid-2"
		o := newSyncer(t, rt, other)
		o.mustSync()
		id := svc.newest("none").ID
		status := s.status()
		svc.calls()
		svc.start = time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _ = rt.RemoveContainer(t.Context(), id) })
		synctest.Wait()
		require.NoError(t, rt.KillPod(t.Context(), runtime.PodKill{Pod: pod, Status: status}))
		assert.Equal(t, []string{"3s StopContainer a 10", "7s StopContainer s1 6", "7s StopPodSandbox s1"}, svc.calls())
		wg.Wait()
	})
}

// TestGraceIsThatOfTheMoment has a pod whose grace period is shortened while its stop waits.
func TestGraceIsThatOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, 900*time.Millisecond)
		c.end(c.pods[1:]...)
		synctest.Wait()
		s := c.pods[0]
		began := time.Now()
		var waited time.Duration
		begins := func() int64 { waited = time.Since(began); return 5 }
		require.NoError(t, c.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status(), GracePeriod: seconds(9), GraceBegins: begins}))
		assert.Greater(t, waited, time.Second)
		c.ends.Wait()
		for _, call := range c.svc.Calls(fake.Target{Pod: s.pod.Name}) {
			if call.Method == "StopContainer" {
				assert.Equal(t, 5*time.Second, call.Grace)
			}
		}
	})
}

func TestRestartDoesNotWaitForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, 900*time.Millisecond)
		c.end(c.pods[1:]...)
		time.Sleep(2 * time.Second)
		s := c.pods[0]
		sick := s.status().Newest("a").ID
		s.more = func(req *runtime.PodSync) { req.Probes = unhealthy{sick} }
		s.pod.Spec.Containers[0].LivenessProbe = &v1.Probe{}
		began := time.Now()
		s.mustSync()
		assert.Equal(t, 900*time.Millisecond, time.Since(began))
		c.ends.Wait()
	})
}

func TestAwaitedPodEndsBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, 900*time.Millisecond)
		c.end(c.pods[1:]...)
		synctest.Wait()
		awaited := make(chan struct{})
		s := c.pods[0]
		time.AfterFunc(time.Second, func() { close(awaited) })
		status, began := s.status(), time.Now()
		require.NoError(t, c.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: status, Awaited: awaited}))
		assert.Less(t, time.Since(began), 5*time.Second)
		c.ends.Wait()
		assert.Greater(t, time.Since(began), 10*time.Second)
	})
}
