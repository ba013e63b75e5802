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
		containers, sandboxes, removals := c.began("StopContainer"), c.began("StopPodSandbox"),
			c.began("RemovePodSandbox")
		assert.Len(t, containers, 40)
		assert.Len(t, sandboxes, 40)
		assert.Len(t, removals, 40)
		slices.Sort(sandboxes)
		assert.LessOrEqual(t, slices.Max(containers), sandboxes[0])
	})
}

func TestEndsOfContainersThatIgnoreTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, time.Hour)
		c.end(c.pods...)
		c.ends.Wait()
		containers := c.began("StopContainer")
		assert.Len(t, containers, 100)
		assert.LessOrEqual(t, slices.Max(containers), 7*time.Second, "they do not wait for the end of a grace period")
		for _, call := range c.svc.Calls(fake.Target{}) {
			if call.Method == "StopContainer" {
				assert.Equal(t, 30*time.Second, call.Grace, "the grace period begins when the stop is sent")
			}
		}
	})
}

// TestGraceBeginsWithTheStop has pods that wait at the gate. Their hooks, and their sidecars, still
// have all of the grace period.
func TestGraceBeginsWithTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		pod := podOf("a")
		pod.Spec.InitContainers = []v1.Container{sidecarNamed("s1")}
		pod.Spec.Containers[0].Lifecycle = preStopSleep(2)
		pod.Spec.TerminationGracePeriodSeconds = seconds(10)
		svc.endSlowly(map[string]time.Duration{"a": 4 * time.Second, "many": time.Hour})
		rt := svc.client(cri.Options{MaxParallelEnds: 1})
		s := newSyncer(t, rt, pod)
		s.mustSync()
		s.mustSync()
		many := podOf()
		many.Name, many.UID = "other", "uid-2"
		for i := range 32 {
			many.Spec.Containers = append(many.Spec.Containers, containerNamed(fmt.Sprint("many", i)))
		}
		svc.Script(fake.Target{Pod: "other"}, fake.Behavior{StopDelay: time.Hour})
		o := newSyncer(t, rt, many)
		o.mustSync()
		status, all := s.status(), o.status()
		svc.calls()
		var wg sync.WaitGroup
		svc.start = time.Now()
		wg.Go(func() {
			assert.NoError(t,
				rt.KillPod(t.Context(), runtime.PodKill{Pod: many, Status: all, GracePeriod: seconds(20)}))
		})
		synctest.Wait()
		svc.calls()
		require.NoError(t, rt.KillPod(t.Context(), runtime.PodKill{Pod: pod, Status: status}))
		wg.Wait()
		assert.Equal(t, []string{"20.1s StopPodSandbox s4", "22s StopContainer a 8", "26s StopContainer s1 4",
			"26s StopPodSandbox s1"}, svc.calls())
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
