package podstatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// mergePodStatus returns the new status of the API object. known is its present status, and own is the status
// that the agent has generated. Neither is changed; the result shares memory with both.
func mergePodStatus(known, own *v1.PodStatus) v1.PodStatus {
	to := *own
	// Fields of the scheduler and of controllers.
	to.NominatedNodeName = known.NominatedNodeName
	to.ResourceClaimStatuses = known.ResourceClaimStatuses
	to.ExtendedResourceClaimStatus = known.ExtendedResourceClaimStatus
	to.NodeAllocatableResourceClaimStatuses = known.NodeAllocatableResourceClaimStatuses
	to.Resize = known.Resize

	if goesBack(known.Phase, own.Phase) {
		to.Phase, to.Reason, to.Message = known.Phase, known.Reason, known.Message
		if podspec.IsPhaseTerminal(to.Phase) {
			to.Conditions = notReady(own.Conditions, to.Phase)
		}
	}
	if known.QOSClass != "" {
		to.QOSClass = known.QOSClass // immutable
	}
	if !known.StartTime.IsZero() {
		to.StartTime = known.StartTime
	}
	to.ObservedGeneration = max(own.ObservedGeneration, known.ObservedGeneration)
	to.Conditions = mergeConditions(known.Conditions, to.Conditions, podspec.IsPhaseTerminal(to.Phase))
	return to
}

// notReady returns the conditions of a pod whose phase is final because of another writer: it
// must not be ready, although its containers still run (kubernetes#108594).
func notReady(conditions []v1.PodCondition, phase v1.PodPhase) []v1.PodCondition {
	reason := "PodFailed"
	if phase == v1.PodSucceeded {
		reason = "PodCompleted"
	}
	out := slices.Clone(conditions)
	for i := range out {
		c := &out[i]
		if c.Type != v1.PodReady && c.Type != v1.ContainersReady {
			continue
		}
		if c.Status != v1.ConditionFalse {
			c.LastTransitionTime = metav1.Now().Rfc3339Copy() // as the API keeps it
		}
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reason, ""
	}
	return out
}

// mergeConditions returns the foreign conditions of known and the agent's own ones, in the
// order of known. A condition whose status is the same keeps its transition time.
func mergeConditions(known, own []v1.PodCondition, ended bool) []v1.PodCondition {
	out := make([]v1.PodCondition, 0, len(known)+len(own))
	// A status without any condition of ours removes none: the patch would remove the list, with
	// those that others have added meanwhile.
	generated := slices.ContainsFunc(own, func(c v1.PodCondition) bool { return status.Owned(c.Type) })
	for _, before := range known {
		switch c := find(own, before.Type); {
		case c != nil && sent(c, ended):
			merged := *c
			if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				merged.LastTransitionTime = before.LastTransitionTime
			}
			out = append(out, merged)
		case !status.Owned(before.Type) || !generated:
			out = append(out, before)
		}
	}
	for i := range own {
		if c := &own[i]; sent(c, ended) && find(known, c.Type) == nil {
			out = append(out, *c)
		}
	}
	return out
}

// sent reports whether the agent sends the condition: those that it owns, and with the final
// phase the disruption by the node (KEP-3329). Others write conditions of that type, too.
func sent(c *v1.PodCondition, ended bool) bool {
	return status.Owned(c.Type) ||
		c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet && ended
}

func find(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// goesBack reports whether a change of the phase would go back (kubernetes#58711): a final
// phase stays, and a Running pod does not become Pending.
func goesBack(from, to v1.PodPhase) bool {
	return podspec.IsPhaseTerminal(from) && from != to || from == v1.PodRunning && (to == v1.PodPending || to == "")
}

// sameOwn reports whether two statuses of the API object have the same values in all that
// the agent writes.
func sameOwn(a, b *v1.PodStatus) bool {
	own := func(s *v1.PodStatus) (out v1.PodStatus) {
		out = *s
		out.NominatedNodeName, out.Resize = "", ""
		out.ResourceClaimStatuses, out.ExtendedResourceClaimStatus, out.NodeAllocatableResourceClaimStatuses = nil, nil,
			nil
		out.Conditions = nil
		for _, c := range s.Conditions {
			if status.Owned(c.Type) {
				out.Conditions = append(out.Conditions, c)
			}
		}
		return out
	}
	x, y := own(a), own(b)
	if len(x.Conditions) != len(y.Conditions) {
		return false
	}
	for i := range x.Conditions { // in any order
		c := find(y.Conditions, x.Conditions[i].Type)
		if c == nil || !equality.Semantic.DeepEqual(&x.Conditions[i], c) {
			return false
		}
	}
	x.Conditions, y.Conditions = nil, nil
	return equality.Semantic.DeepEqual(&x, &y)
}

// overwritten reports whether another writer has changed a condition of the agent between the known status and the
// patch from it to the new one, which does not have that condition. A condition of which the server drops a field is in
// the patch.
func overwritten(known, to, answered *v1.PodStatus) bool {
	return slices.ContainsFunc(to.Conditions, func(c v1.PodCondition) bool {
		before := find(known.Conditions, c.Type)
		return status.Owned(c.Type) && before != nil && equality.Semantic.DeepEqual(before, &c) &&
			!equality.Semantic.DeepEqual(find(answered.Conditions, c.Type), &c)
	})
}

// patch returns the strategic merge patch of the status subresource that leads from one
// status to the other, nil if they are the same. The UID in it is a precondition: the API
// server refuses the patch for another pod of the name. Conditions that neither status has
// stay as they are.
func patch(uid types.UID, from, to *v1.PodStatus) ([]byte, error) {
	if equality.Semantic.DeepEqual(from, to) {
		return nil, nil
	}
	before, err := json.Marshal(v1.Pod{Status: *from})
	if err != nil {
		return nil, fmt.Errorf("encoding the known status: %w", err)
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, fmt.Errorf("encoding the new status: %w", err)
	}
	p, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("comparing the statuses: %w", err)
	}
	if bytes.Equal(p, fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, uid)) {
		return nil, nil
	}
	return p, nil
}
