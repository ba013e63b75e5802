package podworkerstest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// checker is a Syncer in front of the fake one. It checks the order and the
// arguments of all calls, whatever the test is about.
type checker struct {
	podworkers.Syncer
	t *testing.T

	mu      sync.Mutex
	lives   map[types.UID]*life
	updated []*v1.Pod // the pods of Updated
}

// life is what was called in the present incarnation of a UID.
type life struct {
	busy     bool
	last     int    // rank of the last method
	synced   bool   // SyncPod was called
	ended    bool   // SyncPod returned that the pod has ended or failed
	grace    int64  // of the last termination; 0: none
	fullName string // of a static pod
}

// rank is the order of the methods within an incarnation.
var rank = map[fake.Method]int{fake.SyncPod: 1, fake.SyncTerminatingPod: 2, fake.SyncTerminatingOrphan: 2,
	fake.SyncTerminatedPod: 3}

// begin checks a call before it is made. The caller calls the returned function with
// the outcome of the call.
func (c *checker) begin(m fake.Method, uid types.UID, pod *v1.Pod) (l *life, end func(ended, done bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.lives[uid]; l == nil {
		l = &life{}
		c.lives[uid] = l
	}
	if pod != nil && podspec.IsStatic(pod) {
		l.fullName = runtime.RefOf(pod).FullName()
	}
	assert.False(c.t, l.busy, "%s of pod %s begins during another call for it", m, uid)
	assert.GreaterOrEqual(c.t, rank[m], l.last, "%s of pod %s in a later phase", m, uid)
	l.busy, l.last = true, rank[m]
	return l, func(ended, done bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.busy = false
		l.ended = l.ended || ended
		if done {
			delete(c.lives, uid)
		}
	}
}

// SyncPod implements [podworkers.Syncer].
func (c *checker) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (r podworkers.Result, err error) {
	l, end := c.begin(fake.SyncPod, pod.UID, pod)
	defer func() {
		end(err == nil && r.Terminal || errors.As(err, new(*runtime.TerminalError)), false)
	}()
	c.mu.Lock()
	assert.Equal(c.t, !l.synced, typ == podworkers.Create, "pod %s: the first SyncPod of an incarnation, and no "+
		"other, has type Create; this one has %s", pod.UID, typ)
	assert.False(c.t, l.ended, "pod %s has ended, but SyncPod is called", pod.UID)
	for uid, other := range c.lives {
		if other != l && l.fullName != "" && other.fullName == l.fullName {
			assert.False(c.t, other.synced, "pod %s is synced before pod %s of the same full name has finished",
				pod.UID, uid)
		}
	}
	l.synced = true
	c.mu.Unlock()
	assert.Equal(c.t, pod.UID, status.UID, "a status of another pod")
	return c.Syncer.SyncPod(ctx, typ, pod, status)
}

// SyncTerminatingPod implements [podworkers.Syncer].
func (c *checker) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus,
	t podworkers.Termination) error {
	l, end := c.begin(fake.SyncTerminatingPod, pod.UID, pod)
	defer end(false, false)
	if assert.NotNil(c.t, t.GracePeriod, "pod %s is terminated without a grace period", pod.UID) {
		assert.Positive(c.t, *t.GracePeriod, "the grace period of pod %s", pod.UID)
		assert.False(c.t, l.grace > 0 && *t.GracePeriod > l.grace, "the grace period of pod %s grows from %d to %d",
			pod.UID, l.grace, *t.GracePeriod)
		l.grace = *t.GracePeriod
	}
	return c.Syncer.SyncTerminatingPod(ctx, pod, status, t)
}

// SyncTerminatingOrphan implements [podworkers.Syncer].
func (c *checker) SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus,
	grace *int64) (err error) {
	_, end := c.begin(fake.SyncTerminatingOrphan, pod.UID, nil)
	done := false // also if the call panics
	defer func() { end(false, done) }()
	err = c.Syncer.SyncTerminatingOrphan(ctx, pod, status, grace)
	done = err == nil
	return err
}

// SyncTerminatedPod implements [podworkers.Syncer].
func (c *checker) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) (err error) {
	_, end := c.begin(fake.SyncTerminatedPod, pod.UID, pod)
	done := false // also if the call panics
	defer func() { end(false, done) }()
	err = c.Syncer.SyncTerminatedPod(ctx, pod, status)
	done = err == nil
	return err
}

// Updated implements [podworkers.Syncer].
func (c *checker) Updated(pod *v1.Pod) {
	c.mu.Lock()
	c.updated = append(c.updated, pod)
	c.mu.Unlock()
	c.Syncer.Updated(pod)
}

// tookUpdated returns the pods of the calls of Updated since the last call.
func (c *checker) tookUpdated() []*v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.updated
	c.updated = nil
	return took
}
