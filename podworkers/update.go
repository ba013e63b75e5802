package podworkers

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// UpdateType is the type of an [Update]. The zero value is invalid.
type UpdateType int

// The types of updates.
const (
	// Create means that the pod is new in the desired state. For a UID that is being
	// terminated or has finished, it requests a new incarnation after the present one.
	// [Syncer.SyncPod] gets Create in the first call of each incarnation, and never
	// again in it.
	Create UpdateType = iota + 1
	// Change means that the desired pod has changed.
	Change
	// Sync means that something else may have changed: for example, a container has
	// exited. It does not retry a failed SyncPod sooner than [Options.BackoffBase] after
	// the failure.
	Sync
	// Kill means that the pod is to end. No later update undoes it.
	Kill
)

// String returns the type in one lower-case word.
func (t UpdateType) String() string {
	switch t {
	case Create:
		return "create"
	case Change:
		return "change"
	case Sync:
		return "sync"
	case Kill:
		return "kill"
	default:
		return fmt.Sprintf("invalid(%d)", int(t))
	}
}

// Update is a change that concerns one pod. It and everything it points to must not be
// changed after it was passed to UpdatePod.
type Update struct {
	Type UpdateType
	// Pod is the desired pod, never a mirror pod. It is nil only for an orphan.
	Pod *v1.Pod
	// Orphan is the pod in the runtime if it has no spec; Type must be Kill. It is ignored
	// if Pod is set.
	Orphan *runtime.Pod
	// Kill has the details of an update of type Kill; nil means the defaults.
	Kill *KillOptions
	// OnlyKnown is for callers that do not follow the desired pods: the update has no
	// effect on a pod that is not known, so that it never starts one; Done of its kill is
	// called. Of Pod only the identity counts, because the worker may have a newer spec.
	// Type must not be Create.
	OnlyKnown bool
	// Received is the time when the reason for the update was received, for
	// [Call.Received]. Optional.
	Received time.Time
}

// KillOptions are the details of a kill. The options of several kills of a pod are
// merged: the shortest grace period, the last Status, every Done.
type KillOptions struct {
	// Evict means that the pod is evicted because the node is short of a resource. What
	// the pod holds may be removed as soon as possible.
	Evict bool
	// GracePeriod in seconds; nil means the pod's own. Less than 1 counts as 1, as in
	// kubelet. A later kill can only shorten it.
	GracePeriod *int64
	// Status, if not nil, changes the API status of the killed pod before it is
	// reported; see [Termination]. It is ignored if the pod has failed for good before.
	Status func(*v1.PodStatus)
	// Done is called once, when nothing of the pod runs any more. If nothing runs when
	// UpdatePod is called, UpdatePod calls it. It is not called if Run ends before. It
	// must not block.
	Done func()
}

// ref returns the pod that the update is about.
func (u *Update) ref() runtime.PodRef {
	if u.Pod != nil {
		return runtime.RefOf(u.Pod)
	}
	if u.Orphan != nil {
		return u.Orphan.PodRef
	}
	return runtime.PodRef{}
}

// validate returns an error if the update is invalid.
func (u *Update) validate() error {
	switch {
	case u.Type < Create || u.Type > Kill:
		return fmt.Errorf("pod %s: update of unknown type %s", u.ref(), u.Type)
	case u.Pod == nil && u.Orphan == nil:
		return errors.New("update without a pod")
	case u.ref().UID == "":
		return fmt.Errorf("pod %s: update without a UID", u.ref())
	case u.Pod == nil && u.Type != Kill:
		return fmt.Errorf("pod %s: an orphan can only be killed; the update is of type %s", u.ref(), u.Type)
	case u.Pod != nil && podspec.IsMirror(u.Pod):
		return fmt.Errorf("pod %s: a mirror pod has no worker; pass its static pod", u.ref())
	case u.OnlyKnown && u.Type == Create:
		return fmt.Errorf("pod %s: update of type %s with OnlyKnown, which starts no pod", u.ref(), u.Type)
	case u.Kill != nil && u.Type != Kill:
		return fmt.Errorf("pod %s: update of type %s with options for a kill", u.ref(), u.Type)
	default:
		return nil
	}
}

// kill returns the options of the kill, never nil.
func (u *Update) kill() *KillOptions {
	if u.Kill == nil {
		return &KillOptions{}
	}
	return u.Kill
}
