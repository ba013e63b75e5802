package fake

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// The methods of [Workers] that are recorded, for Hold and UntilCalled. The type of an
// update is the call's Detail, as in "create", that of an orphan "kill orphan".
const (
	UpdatePod     = "UpdatePod"
	SyncKnownPods = "SyncKnownPods"
)

// Workers are [syncloop.Workers] that take note of what is to be done for pods, and do
// not do it. A pod that is updated is in [podworkers.PhaseSync] from then on, and one
// that is to end, which an update of Kill says, in [podworkers.PhaseTerminating]; what
// comes after is for the test to say, with [Workers.SetState]. They are safe for
// concurrent use.
type Workers struct {
	calls.Log

	mu      sync.Mutex
	updates []podworkers.Update
	synced  bool
	states  map[types.UID]podworkers.State
}

var _ syncloop.Workers = (*Workers)(nil)

// NewWorkers returns workers that know no pod.
func NewWorkers() *Workers { return &Workers{states: map[types.UID]podworkers.State{}} }

// UpdatePod implements [syncloop.Workers].
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
		if !known {
			st = podworkers.State{Phase: podworkers.PhaseSync, FullName: ref.FullName(), HasConfig: u.Pod != nil, Orphan: u.Pod == nil, StartedAt: time.Now()}
		}
		if u.Type == podworkers.Kill && st.Phase < podworkers.PhaseTerminating {
			st.Phase, st.TerminatingAt = podworkers.PhaseTerminating, time.Now()
		}
		w.states[ref.UID] = st
	})
}

// SyncKnownPods implements [syncloop.Workers]: what is terminated and not desired is
// forgotten.
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
			st.Synced = true
			known[uid] = st
		}
	})
	return known
}

// State implements [syncloop.Workers].
func (w *Workers) State(uid types.UID) podworkers.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.states[uid]
	st.Synced = w.synced
	return st
}

// SetState says where a worker stands with its pod; the zero value says that there is
// none.
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

// Updates returns the updates of the pod, or all if uid is empty, in order.
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
