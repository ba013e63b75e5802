package podworkers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// fakeNode is a Syncer and an Inspector at once. Pods are absent until their
// first sync, and run until they are terminated.
type fakeNode struct {
	podworkers.SyncerBase
	mu      sync.Mutex
	start   time.Time
	trace   []string
	running map[types.UID]bool
	busy    map[types.UID]bool // has a call under way
	reads   int
	cache   *runtime.Cache

	// The outcomes of calls; nil: they succeed at once.
	sync        func(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod) (podworkers.Result, error)
	terminating func(ctx context.Context, pod *v1.Pod, t podworkers.Termination) error
	orphan      func(ctx context.Context) error
	terminated  func(ctx context.Context) error
}

func (n *fakeNode) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	s := &runtime.PodStatus{PodRef: ref}
	if n.running[ref.UID] {
		s.Containers = []runtime.ContainerStatus{{Container: runtime.Container{Name: "c",
			State: runtime.ContainerRunning}}}
	}
	return s, nil
}

// call notes the call, and that the pod runs or not when it has succeeded.
func (n *fakeNode) call(uid types.UID, what string, runs bool, f func() error) error {
	n.mu.Lock()
	n.trace = append(n.trace, fmt.Sprintf("%v %s %s", time.Since(n.start), what, uid))
	if n.busy[uid] {
		n.trace = append(n.trace, "two calls at once")
	}
	n.busy[uid] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busy, uid)
	}()
	err := f()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.running[uid] = runs
	} else {
		n.trace = append(n.trace, fmt.Sprintf("%v %s", time.Since(n.start), err))
	}
	return err
}

func (n *fakeNode) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	_ *runtime.PodStatus) (r podworkers.Result, err error) {
	err = n.call(pod.UID, typ.String(), true, func() error {
		if n.sync != nil {
			r, err = n.sync(ctx, typ, pod)
		}
		return err
	})
	return r, err
}

func (n *fakeNode) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, _ *runtime.PodStatus,
	t podworkers.Termination) error {
	return n.call(pod.UID, fmt.Sprintf("terminating(%d)", *t.GracePeriod), false, func() error {
		if n.terminating == nil {
			return nil
		}
		return n.terminating(ctx, pod, t)
	})
}

func (n *fakeNode) SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, _ *runtime.PodStatus, _ *int64) error {
	return n.call(pod.UID, "orphan", false, func() error {
		if n.orphan == nil {
			return nil
		}
		return n.orphan(ctx)
	})
}

func (n *fakeNode) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, _ *runtime.PodStatus) error {
	return n.call(pod.UID, "terminated", false, func() error {
		if n.terminated == nil {
			return nil
		}
		return n.terminated(ctx)
	})
}

// took returns the calls since it was last called, with the virtual time
// at which they began.
func (n *fakeNode) took() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	trace := n.trace
	n.trace = nil
	return trace
}

// blocked waits for the end of the context, as a call does that hangs in the runtime.
func blocked(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// after succeeds after a time, unless the context ends before.
func after(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
}

// apiPod is a pod from an API server, with a grace period of 30 s.
func apiPod(uid types.UID, name string) *v1.Pod {
	return testpod.New(name, testpod.UID(uid), testpod.Grace(30))
}

// staticPod is a pod from a file.
func staticPod(uid types.UID, name string) *v1.Pod {
	return testpod.With(apiPod(uid, name), testpod.Static)
}

func orphan(uid types.UID, name string) *runtime.Pod {
	return &runtime.Pod{PodRef: runtime.RefOf(apiPod(uid, name))}
}

func killIn(pod *v1.Pod, grace int64) podworkers.Update {
	return podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{GracePeriod: &grace}}
}

// inBubble runs the test in virtual time, with workers that run and by default
// never resync. It ends with nothing left of them.
func inBubble(t *testing.T, opts podworkers.Options, test func(t *testing.T, n *fakeNode, w *podworkers.Pool)) {
	t.Helper()
	wrapped(t, opts, func(n *fakeNode) (podworkers.Syncer, runtime.StatusCache) { return n, n.cache }, test)
}

// wrapped is inBubble with a Syncer and a cache that the test makes.
func wrapped(t *testing.T, opts podworkers.Options, wrap func(n *fakeNode) (podworkers.Syncer, runtime.StatusCache),
	test func(t *testing.T, n *fakeNode, w *podworkers.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
		if opts.ResyncInterval == 0 {
			opts.ResyncInterval = -1
		}
		n.cache = runtime.NewCache(n, runtime.CacheOptions{})
		syncer, cache := wrap(n)
		w, err := podworkers.New(syncer, cache, opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { assert.NoError(t, w.Run(ctx)) })
		synctest.Wait()
		test(t, n, w)
		cancel()
		run.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		assert.Empty(t, n.busy, "a call was left")
	})
}
