package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// dropResized removes the resizes that were carried out and that the runtime does not report
// as such: a node without limits of CPU time has none, and a plugin of the runtime may have
// its own opinion. They are not repeated.
func dropResized(p *podMemory, resizes []plan.Resize) []plan.Resize {
	return slices.DeleteFunc(resizes, func(r plan.Resize) bool { return p.resized[r.Instance.ID.ID] == amounts(r.Container) })
}

// amounts returns the resources that a resize changes, as a comparable value.
func amounts(c *v1.Container) string {
	return fmt.Sprint(c.Resources.Requests.Cpu(), c.Resources.Limits.Cpu(), c.Resources.Limits.Memory())
}

// resize gives running containers other resources, or none of them if one uses too much memory:
// a resize should not stop half way (kubelet: validatePodResizeAction). If it fails, the error is
// also in resizeError.
func (s *podSync) resize(ctx context.Context, resizes []plan.Resize) error {
	var errs []error
	updates := make([]*criv1.LinuxContainerResources, len(resizes))
	for i := range resizes {
		r := &resizes[i]
		updates[i] = translate.ResizedResources(&translate.Container{
			Pod: &translate.Pod{Spec: s.Pod, Host: s.Host, Node: s.r.node(), Dir: s.Dir}, Spec: r.Container, Kind: r.Kind,
		})
		began := time.Now()
		if err := s.checkMemory(ctx, r, updates[i].MemoryLimitInBytes); err != nil {
			errs = append(errs, err)
			s.resized(ctx, r, began, err)
		}
	}
	if len(errs) == 0 {
		for i := range resizes {
			errs = append(errs, s.resizeContainer(ctx, &resizes[i], updates[i]))
		}
	}
	err := errors.Join(errs...)
	if err != nil && ctx.Err() == nil { // what was cut off is done again
		s.resizeError = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return err
}

// resizeContainer gives a running container other resources.
func (s *podSync) resizeContainer(ctx context.Context, r *plan.Resize, to *criv1.LinuxContainerResources) error {
	began := time.Now()
	_, err := call(ctx, s.r, "UpdateContainerResources", s.aboutContainer(r.Container.Name), 0, s.r.rs.UpdateContainerResources,
		&criv1.UpdateContainerResourcesRequest{ContainerId: r.Instance.ID.ID, Linux: to})
	if err == nil {
		s.changed = true
		s.r.pods.with(s.ref.UID, func(p *podMemory) { p.resized[r.Instance.ID.ID] = amounts(r.Container) })
	}
	s.resized(ctx, r, began, err)
	return err
}

// resized reports the outcome of the resize of a container.
func (s *podSync) resized(ctx context.Context, r *plan.Resize, began time.Time, err error) {
	s.containerEvents(r.Container.Name).done(ctx, runtime.Record{Kind: runtime.KindResizeContainer, Attempt: uint32(max(0, r.Instance.RestartCount))}, began, err)
}

// checkMemory returns an error if a lower limit is below what the container uses: the kernel
// would kill a process of it. The texts are kubelet's.
func (s *podSync) checkMemory(ctx context.Context, r *plan.Resize, limit int64) error {
	before := r.Instance.Resources.Limits.Memory().Value()
	if limit <= 0 || before > 0 && limit >= before {
		return nil
	}
	resp, err := call(ctx, s.r, "ContainerStats", s.aboutContainer(r.Container.Name), 0, s.r.rs.ContainerStats, &criv1.ContainerStatsRequest{ContainerId: r.Instance.ID.ID})
	if err != nil {
		return fmt.Errorf("cannot decrease memory limits: reading the memory usage: %w", err)
	}
	usage := resp.GetStats().GetMemory().GetUsageBytes()
	switch {
	case usage == nil:
		return fmt.Errorf("cannot decrease memory limits: missing container %q memory usage", r.Container.Name)
	case usage.GetValue() >= uint64(limit):
		return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d)",
			r.Container.Name, limit, usage.GetValue())
	}
	return nil
}
