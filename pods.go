package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// ErrUnknownPod means that the agent runs no pod with that UID.
var ErrUnknownPod = errors.New("no such pod runs on this node")

// Pods returns the desired pods with their current status. The statuses are copies; the
// rest of each pod is shared and must not be changed. [Agent.Sources] has the pods that are rejected.
func (a *Agent) Pods() []*v1.Pod {
	desired := a.parts.PodManager.Pods()
	out := make([]*v1.Pod, len(desired))
	for i, pod := range desired {
		withStatus := *pod
		if s, ok := a.parts.Status.Get(pod.UID); ok {
			withStatus.Status = *s.DeepCopy()
		}
		out[i] = &withStatus
	}
	return out
}

// Pod returns the desired pod of the UID as [Agent.Pods] does, without the cost of the others. ok is false if it is not desired.
func (a *Agent) Pod(uid types.UID) (pod *v1.Pod, ok bool) {
	desired, ok := a.parts.PodManager.ByUID(uid)
	if !ok {
		return nil, false
	}
	withStatus := *desired
	if s, ok := a.parts.Status.Get(uid); ok {
		withStatus.Status = *s.DeepCopy()
	}
	return &withStatus, true
}

// Terminating returns the pods that are not desired any more, with their current status:
// those that are being stopped, and those that have stopped, until housekeeping forgets
// them. As with [Agent.Pods], all but the statuses is shared. Orphans are not among them: the
// agent has no spec of an orphan.
func (a *Agent) Terminating() []*v1.Pod {
	pods := slices.DeleteFunc(a.parts.Status.Pods(), func(pod *v1.Pod) bool { return a.desired(pod.UID) })
	for _, pod := range pods {
		pod.Status = *pod.Status.DeepCopy()
	}
	return pods
}

// TranslateUID returns the UID of the static pod if uid is that of its mirror pod. Otherwise it returns uid. Users of an
// API server see the UID of the mirror pod only.
func (a *Agent) TranslateUID(uid types.UID) types.UID {
	if a.opts.API.TranslateUID == nil {
		return uid
	}
	return a.opts.API.TranslateUID(uid)
}

// RuntimeStatus returns what was last read of the pod in the runtime, without a call to
// the runtime: all instances of its containers, and where their logs are. It must not be
// changed. It returns false if nothing is known of the pod.
func (a *Agent) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	return a.parts.Cache.Get(uid)
}

// WatchRuntimeStatus returns a channel that receives a value when [Agent.RuntimeStatus] of the
// pod may show other containers or states, see [runtime.StatusCache]. The caller calls stop
// at the end.
func (a *Agent) WatchRuntimeStatus(uid types.UID) (changed <-chan struct{}, stop func()) {
	return a.parts.Cache.WatchStatus(uid)
}

// Exec runs the command in a container, see [runtime.Execer].
func (a *Agent) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
	return a.parts.Runtime.Exec(ctx, id, cmd, timeout)
}

// AddSource adds a source of pods, also while the agent runs. Until it has delivered,
// nothing is cleaned up. The errors are those of [podconfig.Mux.Add], or of a replaced
// PodConfig.
func (a *Agent) AddSource(s podconfig.Source) error { return a.parts.PodConfig.Add(s) }

// RemoveSource removes the source of that name and its pods, and reports whether there
// was one. It returns when the source has ended; the pods end in their own time.
func (a *Agent) RemoveSource(name string) bool { return a.parts.PodConfig.Remove(name) }

// Sources returns the sources of pods, and which pods of them are rejected, see [podconfig.SourceState].
func (a *Agent) Sources() []podconfig.SourceState { return a.parts.PodConfig.Sources() }

// Sync has the pod synced now, as if something had happened to it. The error is
// [ErrUnknownPod].
func (a *Agent) Sync(uid types.UID) error {
	pod, err := a.running(uid)
	if err != nil {
		return fmt.Errorf("kubeletkit: syncing pod %s: %w", uid, err)
	}
	a.parts.PodWorkers.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: pod, OnlyKnown: true, Received: time.Now()})
	return nil
}

// Evict ends the pod: it becomes Failed with the reason and the message, and is not
// started again before its source removes and adds it. Evict does not wait for the end. The
// error is [ErrUnknownPod].
func (a *Agent) Evict(uid types.UID, e runtime.Eviction) error {
	pod, err := a.running(uid)
	if err != nil {
		return fmt.Errorf("kubeletkit: evicting pod %s: %w", uid, err)
	}
	a.parts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations})
	a.kill(pod, &podworkers.KillOptions{Evict: true, GracePeriod: e.GracePeriod, Status: status.Evicted(pod, e.Reason, e.Message)})
	return nil
}

// running returns a desired pod that has a worker.
func (a *Agent) running(uid types.UID) (*v1.Pod, error) {
	pod, desired := a.parts.PodManager.ByUID(uid)
	if !desired || !a.parts.PodWorkers.State(uid).Known() {
		return nil, ErrUnknownPod
	}
	return pod, nil
}

func (a *Agent) kill(pod *v1.Pod, opts *podworkers.KillOptions) {
	a.parts.PodWorkers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, OnlyKnown: true, Kill: opts, Received: time.Now()})
}

// gone reports whether the pod is not desired and has no worker.
func (a *Agent) gone(uid types.UID) bool {
	// Before the first housekeeping a pod may be unknown because it is not yet
	// delivered, or is being taken in.
	if st := a.parts.PodWorkers.State(uid); !st.Synced || st.Known() {
		return false
	}
	return !a.desired(uid)
}

// removable reports whether the pod is gone, was deleted in the API and has ended, where it may be kept by finalizers for
// long, or was evicted and has ended: then the node needs the room.
func (a *Agent) removable(uid types.UID) bool {
	st := a.parts.PodWorkers.State(uid)
	return st.Finished && (st.Deleted || st.Evicted) && !st.RestartRequested || a.gone(uid)
}

// ended reports whether the pod has ended for good. A pod of another source than an API server is started again by the next
// agent if its containers do not show that it has ended.
func (a *Agent) ended(uid types.UID) bool {
	st := a.parts.PodWorkers.State(uid)
	return st.Finished && !st.Static && !st.RestartRequested
}

// desired reports whether the pod is desired.
func (a *Agent) desired(uid types.UID) bool {
	_, ok := a.parts.PodManager.ByUID(uid)
	return ok
}
