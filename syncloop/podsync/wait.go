package podsync

import (
	"context"
	"errors"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// waits are the waits of one SyncPod, by the names of containers, with "" for the pod as a whole.
type waits struct {
	mu sync.Mutex // containers are created concurrently
	by map[string]runtime.WaitError
}

// note adds the wait in the error, if there is one.
func (w *waits) note(container string, err error) {
	wait, failure := runtime.WithoutWaits(err)
	if failure != nil || wait == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]runtime.WaitError{}
	}
	w.by[container] = *wait
}

// editSandbox returns the function with its waits noted.
func (w *waits) editSandbox(
	edit func(context.Context) (runtime.SandboxEdits, error),
) func(context.Context) (runtime.SandboxEdits, error) {
	if edit == nil {
		return nil
	}
	return func(ctx context.Context) (runtime.SandboxEdits, error) {
		edits, err := edit(ctx)
		w.note("", err)
		return edits, err
	}
}

// editContainer returns the function with its waits noted, but for those of a container that is resized.
func (w *waits) editContainer(
	edit func(context.Context, *v1.Container) (runtime.ContainerEdits, error),
) func(context.Context, *v1.Container) (runtime.ContainerEdits, error) {
	if edit == nil {
		return nil
	}
	return func(ctx context.Context, c *v1.Container) (runtime.ContainerEdits, error) {
		edits, err := edit(ctx, c)
		if !runtime.ForResize(ctx) {
			w.note(c.Name, err)
		}
		return edits, err
	}
}

// failed returns the error without its waits, nil if it has nothing else. The error of a pod that only waits is noted
// as that of the pod if it was not noted before: it is that of a runtime.
func (w *waits) failed(err error) error {
	waiting, failure := runtime.WithoutWaits(err)
	if failure == nil && waiting != nil && len(w.by) == 0 {
		w.note("", waiting)
	}
	return failure
}

// apply gives the containers that do not run their waits, in place of the reasons of the runtime.
func (w *waits) apply(pod *v1.Pod, observed *runtime.PodStatus, res *runtime.SyncResult) {
	if len(w.by) == 0 {
		return
	}
	waitingIf(pod, observed, res, func(c string) (v1.ContainerStateWaiting, bool) {
		wait, ok := w.by[c]
		if !ok {
			wait, ok = w.by[""]
		}
		return v1.ContainerStateWaiting{Reason: wait.Reason, Message: wait.Message}, ok
	})
}

// waitingIf sets the waiting reasons of the containers that do not run and for which the function returns one.
func waitingIf(
	pod *v1.Pod, observed *runtime.PodStatus, res *runtime.SyncResult,
	why func(container string) (v1.ContainerStateWaiting, bool),
) {
	for _, c := range podspec.Containers(&pod.Spec) {
		if n := observed.Newest(c.Name); n != nil && n.State != runtime.ContainerExited &&
			n.State != runtime.ContainerCreated {
			continue
		}
		if waiting, ok := why(c.Name); ok {
			if res.Waiting == nil {
				res.Waiting = map[string]v1.ContainerStateWaiting{}
			}
			res.Waiting[c.Name] = waiting
		}
	}
}

// announce reports the waits that differ from those of the sync before.
func (s *Syncer) announce(st *podState, pod *v1.Pod, now map[string]runtime.WaitError) {
	before := st.waits
	st.waits = now
	for container, wait := range now {
		if before[container] == wait {
			continue
		}
		e := runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeNormal, Reason: wait.Reason,
			Message: wait.Message, Logged: true}
		if container != "" {
			e.FieldPath = runtime.FieldPath(pod, container)
		}
		s.log.Info("Pod waits", "pod", e.Pod, "container", container, "reason", wait.Reason, "message", wait.Message)
		s.opts.Event.Emit(e)
		s.opts.Record.Emit(runtime.Record{
			Pod: e.Pod, Stage: runtime.StageDecided, Kind: runtime.KindWait, Container: container, Reason: wait.Reason,
			Message: wait.Message,
		})
	}
}

// callRuntime calls SyncPod of the runtime. If it fails and does not say of which container, all that do not run wait
// with its error; if it has reported no event, there is one.
func (s *Syncer) callRuntime(ctx context.Context, st *podState, req runtime.PodSync,
	w *waits) (res runtime.SyncResult, err error) {
	st.warned.Store(false)
	st.watch.track.Set(stepSync)
	err = runtime.Recover(func() (err error) {
		res, err = s.deps.Runtime.SyncPod(ctx, req)
		return err
	})
	failure := w.failed(err)
	if failure == nil || ctx.Err() != nil || errors.As(failure, new(*runtime.TerminalError)) {
		return res, failure
	}
	ref := runtime.RefOf(req.Pod)
	message := strings.ReplaceAll(failure.Error(), "pod "+ref.String()+": ", "")
	if len(res.Waiting) == 0 {
		reason := reasonCreating(req.Pod)
		waitingIf(req.Pod, req.Status, &res, func(string) (v1.ContainerStateWaiting, bool) {
			return v1.ContainerStateWaiting{Reason: reason, Message: message}, true
		})
	}
	if res.ResizeError == "" && !st.warned.Load() {
		s.failed(ref, "FailedSync", "error syncing pod: "+message)
	}
	return res, failure
}
