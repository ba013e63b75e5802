package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Errors of [PersistentPlugin].Expand that say whether another attempt is useful. After any other error the expansion
// may still be under way.
var (
	// ErrInfeasible means that the volume cannot have the size. The controller may then try another one (KEP-1790).
	ErrInfeasible = errors.New("the volume cannot have this size")
	// ErrInUse means that the volume cannot be expanded while it is used.
	ErrInUse = errors.New("the volume cannot be expanded while it is in use")
	// ErrFinal means that the attempt has failed, and another one may succeed. If the user requests another size
	// meanwhile, and an attempt fails again, the controller may try the other size.
	ErrFinal = errors.New("the volume was not expanded")
)

// expandPeriod is how often the claim of a volume is read to find out whether the volume is to be expanded. A node may
// not watch claims. It is kubelet's syncFrequency, with which it does the same.
const expandPeriod = time.Minute

// notRequired is the annotation of a claim whose volume needs no expansion on the nodes (kubelet:
// NodeExpansionNotRequired).
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// expansion is what is to be done for a volume of which the storage was expanded.
type expansion struct {
	// size is the new size.
	size resource.Quantity
	// mark means that the claim is to be marked before it, and if it fails.
	mark bool
	// complete means that the claim gets the size after it.
	complete bool
}

func (e expansion) isNothing() bool { return e.size.IsZero() }

// expansionOf returns what is to be done for a volume that has the size on this node (kubelet: NodeExpander). The
// controller marks a claim after it has expanded the storage. A volume of several nodes is expanded on each.
func expansionOf(claim *v1.PersistentVolumeClaim, held resource.Quantity) expansion {
	const storage = v1.ResourceStorage
	capacity, status := claim.Status.Capacity[storage], claim.Status.AllocatedResourceStatuses[storage]
	allocated, ok := claim.Status.AllocatedResources[storage]
	switch {
	case status == v1.PersistentVolumeClaimNodeResizePending, status == v1.PersistentVolumeClaimNodeResizeInProgress:
		if ok {
			return expansion{allocated, true, true}
		}
	case status != "":
	case capacity.Cmp(held) > 0 && !held.IsZero() &&
		slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany) &&
		!metav1.HasAnnotation(claim.ObjectMeta, notRequired):
		return expansion{size: capacity}
	case ok:
	case capacity.Cmp(held) < 0 && !capacity.IsZero(): // the volume was expanded for another claim before it was bound
		return expansion{size: held, complete: true}
	case hasCondition(claim, v1.PersistentVolumeClaimFileSystemResizePending): // a controller before KEP-1790
		if want := claim.Spec.Resources.Requests[storage]; want.Cmp(capacity) > 0 {
			return expansion{size: want, complete: true}
		}
	}
	return expansion{}
}

// hasCondition reports whether a claim has a condition that is true.
func hasCondition(claim *v1.PersistentVolumeClaim, condition v1.PersistentVolumeClaimConditionType) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == condition && c.Status == v1.ConditionTrue
	})
}

// withStatus returns a copy of a claim whose expansion on the node has the status, "" for one that has ended.
func withStatus(claim *v1.PersistentVolumeClaim, status v1.ClaimResourceStatus) *v1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	statuses := maps.Clone(out.Status.AllocatedResourceStatuses)
	if statuses == nil {
		statuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	if statuses[v1.ResourceStorage] = status; status == "" {
		delete(statuses, v1.ResourceStorage)
	}
	if out.Status.AllocatedResourceStatuses = statuses; len(statuses) == 0 {
		out.Status.AllocatedResourceStatuses = nil
	}
	return out
}

// finished returns a copy of a claim whose volume has the size on the node (kubelet:
// MarkNodeExpansionFinishedWithRecovery).
func finished(claim *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	out := withStatus(claim, "")
	if out.Status.Capacity == nil {
		out.Status.Capacity = v1.ResourceList{}
	}
	out.Status.Capacity[v1.ResourceStorage] = size
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
			v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
	return out
}

// failed returns a copy of a claim with the condition of an expansion to a size that has failed. An infeasible one is
// left to the controller, and so is one that has failed before if the claim does not request the size any more
// (kubelet: MarkNodeExpansionInfeasible, MarkNodeExpansionFailedCondition).
func failed(claim *v1.PersistentVolumeClaim, size resource.Quantity, err error,
	now time.Time) *v1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	requested := claim.Spec.Resources.Requests[v1.ResourceStorage]
	again := hasCondition(claim, v1.PersistentVolumeClaimNodeResizeError)
	if errors.Is(err, ErrInfeasible) || errors.Is(err, ErrFinal) && requested.Cmp(size) != 0 && again {
		out = withStatus(claim, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	condition := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimNodeResizeError,
		Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Message: fmt.Sprintf("failed to expand pvc with %v", err)}
	for i := range out.Status.Conditions {
		if c := &out.Status.Conditions[i]; c.Type == condition.Type {
			if c.Status == condition.Status {
				condition.LastTransitionTime = c.LastTransitionTime
			}
			*c = condition
			return out
		}
	}
	out.Status.Conditions = append(out.Status.Conditions, condition)
	return out
}

// expand expands a published volume if its claim says so. The claim is nil unless it was read in this sync, before the
// volume was published. It returns the size that the volume has afterwards, which is held unless it was expanded. What
// fails is an event, and is tried again in a later sync; the pod starts all the same.
func (p Claim) expand(ctx context.Context, plugin PersistentPlugin, req PersistentRequest,
	claim *v1.PersistentVolumeClaim) (size resource.Quantity) {
	held := req.Volume.Spec.Capacity[v1.ResourceStorage]
	ref := req.Volume.Spec.ClaimRef
	if p.Claims == nil || ref == nil || !p.persistent.expandDue(req.StateDir) {
		return held
	}
	if claim != nil && expansionOf(claim, held).isNothing() {
		return held
	}
	claim, err := p.Claims.Claim(ctx, ref.Namespace, ref.Name)
	if err != nil || claim.UID != ref.UID { // the API server is away, or the claim is another one
		return held
	}
	todo := expansionOf(claim, held)
	if todo.isNothing() {
		return held
	}
	if req.ReadOnly {
		p.warn(req, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q "+
			"requested read-only file system", req.Volume.Name))
		return held
	}
	size, err = p.expandTo(ctx, plugin, req, claim, todo)
	switch {
	case err != nil:
		p.warn(req, "VolumeResizeFailed", fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v",
			req.Volume.Name, err))
		if errors.Is(err, ErrInUse) {
			p.persistent.expandNoMore(req.StateDir)
		}
		return held
	case !size.IsZero():
		p.event.Emit(runtime.Event{Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeNormal,
			Reason:  "FileSystemResizeSuccessful",
			Message: fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q", req.Volume.Name)})
		return size
	}
	return held
}

func (p Claim) warn(req PersistentRequest, reason, message string) {
	p.event.Emit(runtime.Event{Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeWarning, Reason: reason,
		Message: message})
}

// expandTo expands a volume, and marks its claim. The size is zero if there was nothing to do.
func (p Claim) expandTo(ctx context.Context, plugin PersistentPlugin, req PersistentRequest,
	claim *v1.PersistentVolumeClaim, todo expansion) (size resource.Quantity, err error) {
	if todo.mark {
		marked, err := p.Claims.UpdateStatus(ctx, claim,
			withStatus(claim, v1.PersistentVolumeClaimNodeResizeInProgress))
		if err != nil {
			return size, fmt.Errorf("marking claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		claim = marked
	}
	err = p.persistent.expand(ctx, plugin, req, todo.size)
	switch {
	case err == nil && todo.complete:
		_, err = p.Claims.UpdateStatus(ctx, claim, finished(claim, todo.size))
	case errors.Is(err, ErrUnsupported) && !todo.mark: // the controller has done all of it
		if todo.complete { // as kubelet, it leaves the claim as it is
			p.persistent.expandNoMore(req.StateDir)
			return size, nil
		}
		return todo.size, nil
	case err != nil && todo.mark && isFinal(err):
		_, markErr := p.Claims.UpdateStatus(ctx, claim, failed(claim, todo.size, err, time.Now()))
		err = errors.Join(err, markErr)
	}
	return todo.size, err
}

// isFinal reports whether an expansion that has failed is not under way any more.
func isFinal(err error) bool {
	return slices.ContainsFunc([]error{ErrInfeasible, ErrInUse, ErrFinal, ErrUnsupported}, func(target error) bool {
		return errors.Is(err, target)
	})
}

// expand has the plugin expand a volume to a size.
func (s *persistentVolumes) expand(ctx context.Context, p PersistentPlugin, req PersistentRequest,
	size resource.Quantity) error {
	req.Volume = withCapacity(req.Volume, size)
	unlock, err := s.locks.Lock(ctx, lockOf(p, keyOf(p, p.Key(req.Volume)), req.Place))
	if err != nil {
		return err
	}
	defer unlock()
	return runtime.Recover(func() error { return p.Expand(ctx, req) })
}

// withCapacity returns a copy of a volume with another size.
func withCapacity(pv *v1.PersistentVolume, size resource.Quantity) *v1.PersistentVolume {
	pv = pv.DeepCopy()
	if pv.Spec.Capacity == nil {
		pv.Spec.Capacity = v1.ResourceList{}
	}
	pv.Spec.Capacity[v1.ResourceStorage] = size
	return pv
}

// expandDue reports whether the claim of a volume is to be read again.
func (s *persistentVolumes) expandDue(stateDir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.expandAt[stateDir]) {
		return false
	}
	s.expandAt[stateDir] = time.Now().Add(expandPeriod - time.Second) // a sync may come somewhat early
	return true
}

// expandNoMore keeps a volume from being expanded before it is published again.
func (s *persistentVolumes) expandNoMore(stateDir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expandAt[stateDir] = time.Now().AddDate(100, 0, 0)
}
