package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// ReasonFeature is the reason of pods that need a feature that the node does not declare, and of pods
// with resource claims without [Options.ResourceClaims]. It is kubelet's.
const ReasonFeature = "PodFeatureUnsupported"

// kubeletVersion is that of the kubelet whose behaviour the agent has: a later one has no need to declare a feature
// that each node of its version has. It is never changed.
var kubeletVersion = version.MajorMinor(1, 37)

// features are those that the node declares (KEP-5328).
type features struct {
	declared func() []string
	// claims is [Options.ResourceClaims].
	claims bool
}

func newFeatures(declared func() []string, claims bool) features {
	if declared == nil {
		declared = func() []string { return nil }
	}
	return features{declared, claims}
}

// missing returns the failure of a pod that needs a feature that is not declared, or that the agent
// does not have.
func (f features) missing(pod *v1.Pod) (failure Failure, missing bool) {
	if !f.claims && (len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil) {
		// the containers would start without their devices
		return Failure{Reason: ReasonFeature, Message: "The node does not support resource claims"}, true
	}
	framework := nodedeclaredfeatures.DefaultFramework
	needed, err := framework.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status},
		kubeletVersion)
	if err != nil {
		return Failure{Reason: ReasonFeature, Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v",
			err)}, true
	}
	message, err := f.unsatisfied(needed)
	if err != nil {
		return Failure{Reason: ReasonFeature, Message: fmt.Sprintf("Failed to match pod's feature requirements "+
			"against the node: %v", err)}, true
	}
	return Failure{Reason: ReasonFeature, Message: message}, message != ""
}

// unsatisfied returns kubelet's message about what is needed and not declared, or "".
func (f features) unsatisfied(needed nodedeclaredfeatures.FeatureSet) (string, error) {
	if needed.IsEmpty() {
		return "", nil
	}
	framework := nodedeclaredfeatures.DefaultFramework
	declared := framework.TryMap(slices.Sorted(slices.Values(f.declared())))
	match, err := framework.MatchNodeFeatureSet(needed, declared)
	if err != nil || match.IsMatch {
		return "", err
	}
	return "Pod requires node features that are not available: " + strings.Join(match.UnsatisfiedRequirements, ", "),
		nil
}

// ReasonUpdate is the reason of events about an update of a pod that needs a feature that the node does not declare. It
// is kubelet's.
const ReasonUpdate = "FailedNodeDeclaredFeaturesCheck"

// CheckUpdate returns the message of an event with ReasonUpdate if the update of a pod needs a feature that the
// node does not declare, and "" otherwise. It is safe for concurrent use.
func (a *Admitter) CheckUpdate(old, updated *v1.Pod) (message string) {
	oldSpec, newSpec := decoded(&old.Spec), decoded(&updated.Spec)
	if len(oldSpec.InitContainers) != len(newSpec.InitContainers) ||
		!slices.EqualFunc(oldSpec.Volumes, newSpec.Volumes, func(a, b v1.Volume) bool {
			return (a.EmptyDir == nil) == (b.EmptyDir == nil)
		}) {
		// no update of an API server; the framework would panic
		return ""
	}
	needed, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(
		&nodedeclaredfeatures.PodInfo{Spec: oldSpec, Status: &old.Status}, &nodedeclaredfeatures.PodInfo{Spec: newSpec,
			Status: &updated.Status}, kubeletVersion)
	if err == nil {
		message, err = a.features.unsatisfied(needed)
	}
	if err != nil {
		a.opts.Logger.Error(err, "The features that an update of a pod needs are not known",
			"pod", updated.Namespace+"/"+updated.Name)
	}
	return message
}

// decoded returns a copy of the spec as a decoder makes it: the framework compares quantities with the texts that they
// cache.
func decoded(spec *v1.PodSpec) *v1.PodSpec {
	out := &v1.PodSpec{}
	if data, err := spec.Marshal(); err != nil || out.Unmarshal(data) != nil {
		return spec
	}
	return out
}
