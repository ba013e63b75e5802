package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makePod(name string) *v1.Pod {
	return testpod.New(name, testpod.Namespace("ns"), testpod.Containers("main"))
}

// script is a list of what was called, safe for concurrent use.
type script struct {
	mu    sync.Mutex
	lines []string
}

func (s *script) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// take returns what was added since the last time.
func (s *script) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.lines
	s.lines = nil
	return out
}

func names(pods []*v1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

// recorder is a SyncHandler that writes down what it was called for.
type recorder struct {
	syncloop.Base
	script
	cleanupErr error
}

func (r *recorder) HandlePodAdditions(pods []*v1.Pod) { r.add("add %v", names(pods)) }
func (r *recorder) HandlePodUpdates(pods []*v1.Pod)   { r.add("update %v", names(pods)) }
func (r *recorder) HandlePodRemoves(pods []*v1.Pod)   { r.add("remove %v", names(pods)) }
func (r *recorder) HandlePodReconcile(pods []*v1.Pod) { r.add("reconcile %v", names(pods)) }
func (r *recorder) HandlePodSyncs(pods []*v1.Pod)     { r.add("sync %v", names(pods)) }
func (r *recorder) HandlePodCleanups(context.Context) error {
	r.add("cleanup")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cleanupErr
}
func (r *recorder) failCleanups(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanupErr = err
}

// config is a stream of desired state that the test writes.
type config struct {
	podconfig.Base
	changes chan podconfig.Change
	mu      sync.Mutex
	seen    bool
	asked   int // calls of SourcesReady
}

func (c *config) Changes() <-chan podconfig.Change { return c.changes }
func (c *config) SourcesReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.seen
}
func (c *config) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}
func (c *config) see() { c.set(true) }
func (c *config) set(seen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
}

// events is a stream of runtime events that the test writes.
type events struct {
	pleg.Generator
	ch  chan pleg.PodEvents
	mu  sync.Mutex
	err error
}

func (e *events) Watch() <-chan pleg.PodEvents { return e.ch }
func (e *events) Healthy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
func (e *events) Relist() {}
func (e *events) set(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

// checker is a runtime whose health the test sets.
type checker struct {
	mu     sync.Mutex
	err    error
	checks int
}

func (c *checker) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	return c.err
}
func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks
}
func (c *checker) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// podSet has the desired pods.
type podSet struct{ *podmanager.Store }

func newPodSet() podSet { return podSet{podmanager.New()} }

func (s podSet) of(uid types.UID) *v1.Pod {
	pod, _ := s.ByUID(uid)
	return pod
}

// workers write down the updates; the test says in which state pods are.
type workers struct {
	podworkers.Workers
	script
	states  map[types.UID]podworkers.State
	kills   []podworkers.Update
	drained bool
	synced  bool
}

func (w *workers) UpdatePod(u podworkers.Update) {
	if u.Pod == nil {
		w.add("%s orphan %s", u.Type, u.Orphan.Name)
		w.states[u.Orphan.UID] = podworkers.State{Phase: podworkers.PhaseTerminating, TerminatingAt: time.Now()}
		return
	}
	w.add("%s %s", u.Type, u.Pod.Name)
	if u.Kill != nil {
		w.kills = append(w.kills, u)
	}
	if _, known := w.states[u.Pod.UID]; !known {
		w.states[u.Pod.UID] = podworkers.State{Phase: podworkers.PhaseSync}
	}
}

func (w *workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.State {
	w.synced = true
	want := map[types.UID]bool{}
	for _, pod := range desired {
		want[pod.UID] = true
	}
	out := map[types.UID]podworkers.State{}
	for uid, s := range w.states {
		if !want[uid] && s.Terminated() {
			delete(w.states, uid)
			continue
		}
		out[uid] = s
	}
	return out
}

func (w *workers) State(uid types.UID) podworkers.State {
	s := w.states[uid]
	s.Drained = w.drained
	return s
}

// statuses is a status manager of the plainest kind.
type statuses struct {
	status.Base
	m map[types.UID]v1.PodStatus
}

func newStatuses() statuses { return statuses{m: map[types.UID]v1.PodStatus{}} }

func (s statuses) Get(uid types.UID) (v1.PodStatus, bool) {
	st, ok := s.m[uid]
	return st, ok
}
func (s statuses) Set(pod *v1.Pod, st v1.PodStatus) { s.m[pod.UID] = st }
func (s statuses) Prune(keep func(types.UID) bool) {
	for uid := range s.m {
		if !keep(uid) {
			delete(s.m, uid)
		}
	}
}

// lister is what a runtime holds.
type lister struct {
	script
	pods []*runtime.Pod
	err  error
}

func (l *lister) ListPods(context.Context) ([]*runtime.Pod, error) {
	l.add("list")
	return l.pods, l.err
}

// dirs removes directories in name only.
type dirs struct{ script }

func (d *dirs) Remove(_ context.Context, ref runtime.PodRef, _ string) error {
	d.add("remove %s", ref.UID)
	return nil
}

// keeper keeps pods in name only.
type keeper struct {
	checkpoint.Base
	script
	last *v1.Pod // that was kept
}

func (c *keeper) Keep(pod *v1.Pod) {
	c.last = pod
	c.add("keep %s", pod.UID)
}
func (c *keeper) Drop(uid types.UID) { c.add("drop %s", uid) }
func (c *keeper) Prune(keep func(types.UID) bool) {
	for _, uid := range []types.UID{"uid-web", "uid-big", "uid-gone"} {
		if !keep(uid) {
			c.add("prune %s", uid)
		}
	}
}

var errAway = errors.New("runtime is away")
