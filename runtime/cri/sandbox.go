package cri

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// stopSandbox stops a sandbox, once: for each stop containerd takes the network down, also
// if the sandbox was stopped before. A sandbox that has died by itself is stopped too, as
// only this releases its network. So is one that an earlier agent may have stopped: what
// the runtime lists does not tell the two apart.
func (r *Runtime) stopSandbox(ctx context.Context, about, id string, gate *gate) error {
	if r.stopped.has(id) {
		return nil
	}
	leave, err := gate.enter(ctx, second, callStep())
	if err != nil {
		return fmt.Errorf("%s: stopping its sandbox: %w", about, err)
	}
	defer leave()
	return r.stopSandboxNow(ctx, about, id)
}

// stopSandboxNow is stopSandbox without the gate. Concurrent callers for the same sandbox
// share one call: of two calls containerd lets one fail, as it can tear down the network
// once.
func (r *Runtime) stopSandboxNow(ctx context.Context, about, id string) error {
	return once(ctx, &r.stops, about, id, func() error {
		if r.stopped.has(id) {
			return nil
		}
		r.removal.forget(id)
		_, err := call(ctx, r, "StopPodSandbox", about, 0, r.rs.StopPodSandbox,
			&criv1.StopPodSandboxRequest{PodSandboxId: id})
		if err == nil {
			r.stopped.add(id)
			r.left.remove(id)
		}
		return unlessNotFound(err)
	})
}

// maxLeave is how long a sandbox that was left to run is reported as not ready. If it was not
// removed by then, it is ready again, and so it is stopped as that of a pod that is not desired.
const maxLeave = 5 * time.Minute

// removal is what was observed of the removal of sandboxes. CRI requires that a sandbox is stopped
// before. But containerd and CRI-O stop it in the removal, too, and take its network down, also if
// that was done before: with one call instead of two, the end of a pod takes an eighth less of
// containerd's CPU time. So the sandboxes of pods without host ports are left to run until they are
// removed. The first one is removed without a stop. If the event stream shows that this stops it, so
// are the others; if it was stopped in another way before, the next one is tried. The zero value has observed nothing.
type removal struct {
	mu    sync.Mutex
	tried string // the sandbox that was removed without a stop first; "" before
	stops bool
}

// mayRemoveRunning reports whether a sandbox that was left can be removed without a stop.
func (o *removal) mayRemoveRunning(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tried == "" {
		o.tried = id
		return true
	}
	return o.stops
}

// forget means that the sandbox was not removed, or that it is stopped before.
func (o *removal) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tried == id {
		o.tried = ""
	}
}

// stopped takes the event that a sandbox has stopped.
func (o *removal) stopped(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stops = o.stops || o.tried == id && id != ""
}

// isLeft reports whether a sandbox is left to run until it is removed.
func (r *Runtime) isLeft(id string) bool { return r.left.addedWithin(id, maxLeave) }

func hasHostPorts(pod *v1.Pod) bool {
	for _, c := range podspec.Containers(&pod.Spec) {
		for i := range c.Ports {
			if c.Ports[i].HostPort != 0 {
				return true
			}
		}
	}
	return false
}

// sandboxSet is a set of the IDs of sandboxes. The zero value is empty.
type sandboxSet struct {
	mu sync.Mutex
	// ids has the time when each was added.
	ids map[string]time.Time
}

func (s *sandboxSet) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

func (s *sandboxSet) addedWithin(id string, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.ids[id]
	return ok && time.Since(at) < d
}

func (s *sandboxSet) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]time.Time{}
	}
	s.ids[id] = time.Now()
}

func (s *sandboxSet) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

// keep drops the IDs that a complete list of sandboxes does not have: others have removed
// them. A sandbox that is newer than the list may be dropped too.
func (s *sandboxSet) keep(list []*criv1.PodSandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return
	}
	listed := make(map[string]struct{}, len(list))
	for _, sandbox := range list {
		listed[sandbox.GetId()] = struct{}{}
	}
	maps.DeleteFunc(s.ids, func(id string, _ time.Time) bool { _, ok := listed[id]; return !ok })
}
