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
// with resource claims. It is kubelet's.
const ReasonFeature = "PodFeatureUnsupported"

// features are those that the node declares (KEP-5328).
type features struct {
	declared nodedeclaredfeatures.FeatureSet
}

func newFeatures(names []string) features {
	return features{nodedeclaredfeatures.DefaultFramework.TryMap(slices.Sorted(slices.Values(names)))}
}

// missing returns the failure of a pod that needs a feature that is not declared, or that the agent
// does not have.
func (f features) missing(pod *v1.Pod) (failure Failure, missing bool) {
	if len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil { // the containers would start without their devices
		return Failure{Reason: ReasonFeature, Message: "The node does not support resource claims"}, true
	}
	framework := nodedeclaredfeatures.DefaultFramework
	needed, err := framework.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, version.MajorMinor(1, 36))
	if err != nil {
		return Failure{Reason: ReasonFeature, Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v", err)}, true
	}
	match, err := framework.MatchNodeFeatureSet(needed, f.declared)
	if err != nil {
		return Failure{Reason: ReasonFeature, Message: fmt.Sprintf("Failed to match pod's feature requirements against the node: %v", err)}, true
	}
	if !match.IsMatch {
		return Failure{Reason: ReasonFeature, Message: "Pod requires node features that are not available: " + strings.Join(match.UnsatisfiedRequirements, ", ")}, true
	}
	return Failure{}, false
}
