package cri

import (
	"context"
	"fmt"
	"maps"
	"sync"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopSandbox stops a sandbox, once: for each stop containerd takes the network down, also
// if the sandbox was stopped before. A sandbox that has died by itself is stopped too, as
// only this releases its network. So is one that an earlier agent may have stopped: what
// the runtime lists does not tell the two apart.
func (r *Runtime) stopSandbox(ctx context.Context, about, id string, gate *gate, t turn, awaited <-chan struct{}) error {
	if r.stopped.has(id) {
		return nil
	}
	place, err := gate.enter(ctx, t, awaited)
	if err != nil {
		return fmt.Errorf("%s: stopping its sandbox: %w", about, err)
	}
	defer place.leave()
	return r.stopSandboxNow(ctx, about, id)
}

// stopSandboxNow is stopSandbox without the gate. Concurrent callers for the same sandbox
// share one call: of two calls containerd lets one fail, as it can tear down the network
// once.
func (r *Runtime) stopSandboxNow(ctx context.Context, about, id string) error {
	return r.stops.do(ctx, about, id, func() error {
		if r.stopped.has(id) {
			return nil
		}
		_, err := call(ctx, r, "StopPodSandbox", about, 0, r.rs.StopPodSandbox, &criv1.StopPodSandboxRequest{PodSandboxId: id})
		if err == nil {
			r.stopped.add(id)
		}
		return unlessNotFound(err)
	})
}

// stoppedSandboxes has the IDs of sandboxes that were stopped by this Runtime. A sandbox never
// runs again. The zero value is empty.
type stoppedSandboxes struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *stoppedSandboxes) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

func (s *stoppedSandboxes) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

func (s *stoppedSandboxes) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

// keep drops the IDs that a complete list of sandboxes does not have: others have removed
// them. A sandbox that is newer than the list may be dropped too, and is stopped once more.
func (s *stoppedSandboxes) keep(list []*criv1.PodSandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return
	}
	listed := make(map[string]struct{}, len(list))
	for _, sandbox := range list {
		listed[sandbox.GetId()] = struct{}{}
	}
	maps.DeleteFunc(s.ids, func(id string, _ struct{}) bool { _, ok := listed[id]; return !ok })
}
