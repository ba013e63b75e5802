package podsync

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const (
	// slowAfter is the time after which a step that is under way is named.
	slowAfter = 5 * time.Second
	// lookPeriod is the time between two looks at the steps of a call that takes longer than that.
	lookPeriod = time.Second
	// reasonSlow is the reason of the event that names a step.
	reasonSlow = "WaitingForStep"
)

// The steps of a call that are not those of a component.
var (
	stepSync    = &underway.Step{Name: "runtime, step SyncPod", Hidden: true}
	stepKill    = &underway.Step{Name: "runtime, step KillPod", Hidden: true}
	stepInspect = &underway.Step{Name: "runtime, step InspectPod", Hidden: true}
	stepMeasure = &underway.Step{Name: "measurement of its storage"}
)

// watch names the steps of a pod that are under way for long, during one call of its worker.
type watch struct {
	track underway.Track
	timer *time.Timer // made by the first call

	mu sync.Mutex
	// pod is that of the call under way, nil if there is none. looking is closed when a look that is under way has
	// ended; nil if none is.
	pod     *v1.Pod
	looking chan struct{}
	// slow is what was named last in this call, zero if nothing is named now. announced is the last one with an event.
	slow, announced underway.Slow
}

// begin starts to watch a call of the worker of the pod. end follows it.
func (s *Syncer) begin(ctx context.Context, st *podState, pod *v1.Pod) context.Context {
	w := &st.watch
	w.track.Reset(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pod, w.announced = pod, underway.Slow{}
	if w.timer == nil {
		w.timer = time.AfterFunc(lookPeriod, func() { s.look(st) })
	} else {
		w.timer.Reset(lookPeriod)
	}
	return underway.With(ctx, &w.track)
}

// end ends what begin has begun. No event of the call follows it, and the status names no step.
func (s *Syncer) end(st *podState) {
	w := &st.watch
	w.mu.Lock()
	w.pod = nil
	looking := w.looking
	w.mu.Unlock()
	w.timer.Stop()
	if looking != nil {
		<-looking
	}
	if w.slow != (underway.Slow{}) {
		w.slow = underway.Slow{}
		s.setSlow(st, w.slow)
	}
}

// look names the step of a pod that takes long.
func (s *Syncer) look(st *podState) {
	w := &st.watch
	w.mu.Lock()
	pod := w.pod
	if pod == nil || w.looking != nil { // the call has ended meanwhile
		w.mu.Unlock()
		return
	}
	ended := make(chan struct{})
	w.looking = ended
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.looking = nil
		close(ended)
		if w.pod != nil {
			w.timer.Reset(lookPeriod)
		}
	}()
	if err := runtime.Recover(func() error { s.name(st, pod); return nil }); err != nil {
		s.log.Error(err, "A step of a pod that takes long cannot be named", "pod", runtime.RefOf(pod))
	}
}

// name brings the status up to date with the step that takes long, and emits the event.
func (s *Syncer) name(st *podState, pod *v1.Pod) {
	w := &st.watch
	if slow := w.track.Slow(time.Now(), slowAfter); slow != w.slow {
		w.slow = slow
		s.setSlow(st, slow)
	}
	if w.slow.Name == "" || w.slow == w.announced {
		return
	}
	st.mu.Lock()
	ends := st.last.phase != phaseSync
	st.mu.Unlock()
	if ends && w.announced.Name != "" {
		return // each container of a pod may take its grace period
	}
	w.announced = w.slow
	e := runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeNormal, Reason: reasonSlow,
		Message: slowMessage(w.slow), Logged: true}
	if w.slow.Container != "" {
		e.FieldPath = runtime.FieldPath(pod, w.slow.Container)
	}
	s.log.Info("A step of a pod takes long", "pod", e.Pod, "step", w.slow.Name, "since", w.slow.Since)
	s.opts.Event.Emit(e)
}

// slowMessage is the message of containers that wait for the step, and of its event.
func slowMessage(slow underway.Slow) string {
	return fmt.Sprintf("waiting for %s, since %s", slow.Name, slow.Since.UTC().Format(time.RFC3339))
}

// setSlow brings the status up to date with the step that takes long, zero if none does.
func (s *Syncer) setSlow(st *podState, slow underway.Slow) {
	s.refresh(st, func() bool {
		st.slow = slow
		return st.last.phase == phaseSync
	})
}

// waitingNow returns the waiting reasons of the last SyncPod, with the step that takes long as the message of the
// containers that wait for it: the container of the step, or all for a step of the pod. st.mu is held.
func (st *podState) waitingNow(pod *v1.Pod) map[string]v1.ContainerStateWaiting {
	if st.slow.Name == "" {
		return st.waiting
	}
	now := maps.Clone(st.waiting)
	if now == nil {
		now = map[string]v1.ContainerStateWaiting{}
	}
	message := slowMessage(st.slow)
	for _, c := range podspec.Containers(&pod.Spec) {
		if st.slow.Container != "" && st.slow.Container != c.Name {
			continue
		}
		w, waits := now[c.Name]
		if w.Message = message; !waits {
			w.Reason = reasonCreating(pod)
		}
		now[c.Name] = w
	}
	return now
}

// namedObjects are objects whose reads name themselves.
type namedObjects struct{ runtime.Objects }

func (o namedObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	call := underway.Begin(ctx, "", "secret", namespace+"/"+name)
	defer call.End()
	return o.Objects.Secret(call, namespace, name)
}

func (o namedObjects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	call := underway.Begin(ctx, "", "config map", namespace+"/"+name)
	defer call.End()
	return o.Objects.ConfigMap(call, namespace, name)
}
