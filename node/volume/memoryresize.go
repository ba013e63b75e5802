package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// MemoryResizer is a component that changes the sizes of volumes in memory of pods that run, when an API server changes
// their size limits (KEP-6030, alpha in kubelet 1.37). Without the component, a changed limit counts when the volume is
// made again.
type MemoryResizer struct {
	// Refuse is why such a resize is infeasible on this node. "": it is not.
	Refuse string
}

var (
	_ lifecycle.Admitter = MemoryResizer{}
	_ lifecycle.Preparer = MemoryResizer{}
)

// Name implements [lifecycle.Component].
func (MemoryResizer) Name() string { return "volumes in memory" }

// Admit implements [lifecycle.Admitter]: it refuses resizes if they are infeasible.
func (r MemoryResizer) Admit(req lifecycle.AdmitRequest) (none lifecycle.AdmitResponse, _ error) {
	if r.Refuse == "" || req.Held == nil {
		return none, nil
	}
	limits := &v1.Pod{Spec: v1.PodSpec{Volumes: req.Pod.Spec.Volumes}}
	if !podspec.SameResources(limits, &v1.Pod{Spec: v1.PodSpec{Volumes: req.Held.Spec.Volumes}}) {
		return none, lifecycle.Refuse(v1.PodReasonInfeasible, r.Refuse)
	}
	return none, nil
}

// Prepare implements [lifecycle.Preparer]: it gives the volumes that are mounted their size, which is the smaller of
// their limit and the pod's limit of memory. The size of one that holds more does not change, which is an error of the
// resize.
func (r MemoryResizer) Prepare(_ context.Context, req lifecycle.PrepareRequest) (out lifecycle.PrepareResponse,
	_ error) {
	if r.Refuse != "" || !podspec.Resizable(req.Pod) {
		return out, nil
	}
	var errs []error
	for i := range req.Pod.Spec.Volumes {
		v := &req.Pod.Spec.Volumes[i]
		limit := podspec.MemoryVolumeLimit(v)
		if limit == nil {
			continue
		}
		err := resizeTmpfs(PlaceOf(req.Dir, EmptyDir{}.Name(), v.Name).Dir, memorySize(req.Pod, limit, nil))
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to resize volume %s: %w", v.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		out.ResizeError = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return out, nil
}
