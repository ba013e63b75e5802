package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods of [Workers] that are recorded, for Fail, Hold and UntilCalled. The
// Detail of an UpdatePod is the type of the update, as in "create", and "kill orphan" for
// an orphan.
const (
	Run           = "Run"
	UpdatePod     = "UpdatePod"
	SyncKnownPods = "SyncKnownPods"
	Drain         = "Drain"
)

// Workers is a [podworkers.Workers] that records updates and calls no syncer. A pod
// with an update is in [podworkers.PhaseSync], and in [podworkers.PhaseTerminating] after
// an update of type Kill; a test sets later states with [Workers.SetState]. It is safe
// for concurrent use. It never calls the Done of a kill. Make one with [NewWorkers].
type Workers struct {
	podworkers.Base
	calls.Log

	mu      sync.Mutex
	ran     bool
	updates []podworkers.Update
	synced  bool
	drained bool
	states  map[types.UID]podworkers.State
}

var _ podworkers.Workers = (*Workers)(nil)

// NewWorkers returns workers without pods.
func NewWorkers() *Workers { return &Workers{states: map[types.UID]podworkers.State{}} }

// Run implements [podworkers.Workers]. It waits for the end of ctx.
func (w *Workers) Run(ctx context.Context) error {
	w.mu.Lock()
	again := w.ran
	w.ran = true
	w.mu.Unlock()
	return w.Do(ctx, calls.Call{Method: Run}, func() error {
		if again {
			return fmt.Errorf("podworkers/fake: %w", runtime.ErrAlreadyRunning)
		}
		<-ctx.Done()
		return nil
	})
}

// UpdatePod implements [podworkers.Workers].
func (w *Workers) UpdatePod(u podworkers.Update) {
	ref, detail := runtime.PodRef{}, u.Type.String()
	switch {
	case u.Pod != nil:
		ref = runtime.RefOf(u.Pod)
	case u.Orphan != nil:
		ref, detail = u.Orphan.PodRef, detail+" orphan"
	}
	w.Note(calls.Call{Method: UpdatePod, Pods: []runtime.PodRef{ref}, Detail: detail}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.updates = append(w.updates, u)
		st, known := w.states[ref.UID]
		if !known && u.OnlyKnown {
			return
		}
		if !known {
			st = podworkers.State{Phase: podworkers.PhaseSync, FullName: ref.FullName(), HasConfig: u.Pod != nil,
				Orphan: u.Pod == nil, StartedAt: time.Now()}
		}
		if u.Type == podworkers.Kill && st.Phase < podworkers.PhaseTerminating {
			st.Phase, st.TerminatingAt = podworkers.PhaseTerminating, time.Now()
		}
		w.states[ref.UID] = st
	})
}

// SyncKnownPods implements [podworkers.Workers]. It forgets terminated pods that are
// not desired.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.State {
	known := map[types.UID]podworkers.State{}
	w.Note(calls.Call{Method: SyncKnownPods}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.synced = true
		maps.DeleteFunc(w.states, func(uid types.UID, st podworkers.State) bool {
			return st.Terminated() && !slices.ContainsFunc(desired, func(pod *v1.Pod) bool { return pod.UID == uid })
		})
		for uid, st := range w.states {
			st.Synced, st.Drained = true, w.drained
			known[uid] = st
		}
	})
	return known
}

// Drain implements [podworkers.Workers]. Later updates have the same effects as before.
func (w *Workers) Drain() {
	w.Note(calls.Call{Method: Drain}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drained = true
	})
}

// State implements [podworkers.Workers].
func (w *Workers) State(uid types.UID) podworkers.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.states[uid]
	st.Synced, st.Drained = w.synced, w.drained
	return st
}

// SetState sets the state of a pod. The zero value removes it.
func (w *Workers) SetState(uid types.UID, st podworkers.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.Known() {
		w.states[uid] = st
	} else {
		delete(w.states, uid)
	}
	w.Changed()
}

// Updates returns the updates of the pod in order; an empty UID means all pods.
func (w *Workers) Updates(uid types.UID) []podworkers.Update {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []podworkers.Update
	for _, u := range w.updates {
		if uid == "" || u.Pod != nil && u.Pod.UID == uid || u.Pod == nil && u.Orphan != nil && u.Orphan.UID == uid {
			out = append(out, u)
		}
	}
	return out
}
