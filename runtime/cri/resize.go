package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// dropResized removes the resizes that were carried out and that the runtime does not report
// as such: a node without limits of CPU time has none, and a plugin of the runtime may have
// its own opinion. They are not repeated.
func dropResized(p *podMemory, pod *v1.Pod, resizes []plan.Resize) []plan.Resize {
	return slices.DeleteFunc(resizes,
		func(r plan.Resize) bool { return p.resized[r.Instance.ID.ID] == amounts(pod, r.Container) })
}

// amounts returns the resources of a container that a resize changes, as a comparable value.
func amounts(pod *v1.Pod, c *v1.Container) string {
	cpu, memory := podspec.LimitOf(pod, c, v1.ResourceCPU), podspec.LimitOf(pod, c, v1.ResourceMemory)
	return fmt.Sprint(c.Resources.Requests.Cpu(), c.Resources.Requests.Memory(), &cpu, &memory)
}

// resizedPod returns the resources that the pod as a whole has, if these were changed and its sandbox was not told yet;
// nil otherwise. If the resources in force are not known, they are those of the spec. amounts are those that the pod is
// to have.
func (s *podSync) resizedPod(sandbox string) (held *v1.ResourceRequirements, amounts string) {
	inForce := s.Status.Resources
	if s.Pod.Spec.Resources == nil || !podspec.Resizable(s.Pod) || inForce != nil &&
		len(runtime.PodResizeDue(s.Pod, s.Status)) == 0 {
		return nil, ""
	}
	requests, limits := podspec.Requests(s.Pod), podspec.Limits(s.Pod)
	amounts = fmt.Sprint(sandbox, requests.Cpu(), limits.Cpu(), limits.Memory())
	known := false
	s.r.pods.with(s.ref.UID, func(p *podMemory) { known = p.resizedPod == amounts })
	switch {
	case known:
		return nil, ""
	case inForce == nil:
		return s.Pod.Spec.Resources, amounts
	}
	return podspec.HeldByPod(s.Pod, inForce.Requests, inForce.Limits), amounts
}

// resize gives running containers other resources, or none of them if one uses too much memory, or
// if the runtime refuses what the sandbox needs for them: a resize should not stop half way (kubelet:
// validatePodResizeAction). If it fails, the error is also in resizeError.
func (s *podSync) resize(ctx context.Context, acts plan.Actions) (err error) {
	resizes := acts.Resize
	old := map[string]v1.ResourceRequirements{} // of the containers that are resized or restarted for it
	for i := range resizes {
		old[resizes[i].Container.Name] = *resizes[i].Instance.Resources
	}
	for i := range acts.Kill {
		if k := &acts.Kill[i]; k.Reason == plan.ReasonResize && k.Container.Resources != nil {
			old[k.Container.Name] = *k.Container.Resources
		}
	}
	whole, podAmounts := s.resizedPod(acts.SandboxID)
	if s.HoldResize || len(old) == 0 && whole == nil {
		return nil
	}
	start := time.Now()
	defer func() { s.r.opts.Measure.Emit(PodResize{s.ref, time.Since(start), err}) }()
	var errs []error
	updates := make([]*criv1.LinuxContainerResources, len(resizes))
	for i := range resizes {
		r := &resizes[i]
		in := &translate.Container{
			Pod: &translate.Pod{Spec: s.Pod, Host: s.Host, Node: s.r.node(), Dir: s.Dir}, Spec: r.Container,
			Kind: r.Kind,
		}
		if s.EditContainer != nil {
			edits, err := s.EditContainer(runtime.WithResize(ctx), r.Container)
			if err != nil {
				return err
			}
			in.Edits.Unified, in.Edits.NoCPUQuota = edits.Unified, edits.NoCPUQuota
		}
		updates[i] = translate.ResizedResources(in)
		began := time.Now()
		if err := s.checkMemory(ctx, r, updates[i].MemoryLimitInBytes); err != nil {
			errs = append(errs, err)
			s.resized(ctx, r, began, err)
		}
	}
	err = errors.Join(errs...)
	if err == nil {
		began, rejected := time.Now(), true
		err = s.resizeSandbox(ctx, acts.SandboxID, old, whole, func() error {
			rejected = false
			errs := make([]error, len(resizes))
			for i := range resizes {
				errs[i] = s.resizeContainer(ctx, &resizes[i], updates[i])
			}
			return errors.Join(errs...)
		})
		for i := range resizes {
			if rejected {
				s.resized(ctx, &resizes[i], began, err)
			}
		}
		if err == nil && whole != nil {
			s.r.pods.with(s.ref.UID, func(p *podMemory) { p.resizedPod = podAmounts })
		}
	}
	if err != nil && ctx.Err() == nil { // what was cut off is done again
		s.resizeError = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return err
}

// resizeSandbox tells the runtime what the sandbox needs, before the containers are resized, and again
// after that if it is less of something then: runtimes of virtual machines change these (KEP-1287). old
// has the resources that containers had, and whole those of the pod as a whole, if these change.
func (s *podSync) resizeSandbox(ctx context.Context, id string, old map[string]v1.ResourceRequirements,
	whole *v1.ResourceRequirements, containers func() error) error {
	pod := &translate.Pod{Spec: s.Pod, Host: s.Host, Node: s.r.node(), Dir: s.Dir}
	if s.EditSandbox != nil {
		var err error
		if pod.Edits, err = s.EditSandbox(ctx); err != nil {
			return err
		}
	}
	r := translate.ResizeSandbox(pod, old, whole)
	update := func(to *criv1.LinuxContainerResources) error {
		_, err := call(ctx, s.r, "UpdatePodSandboxResources", s.about, 0, s.r.rs.UpdatePodSandboxResources,
			&criv1.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: r.Overhead, Resources: to})
		// containerd 2.2 has the code Unknown for it.
		if code := status.Code(err); code == codes.Unimplemented || code == codes.Unknown &&
			strings.Contains(err.Error(), "not implemented") {
			return nil
		}
		return err
	}
	if err := update(r.Before); err != nil {
		return fmt.Errorf("resize rejected: %w", err)
	}
	if err := containers(); err != nil || r.After == nil {
		return err
	}
	return update(r.After)
}

// resizeContainer gives a running container other resources.
func (s *podSync) resizeContainer(ctx context.Context, r *plan.Resize, to *criv1.LinuxContainerResources) error {
	began := time.Now()
	_, err := call(ctx, s.r, "UpdateContainerResources", s.aboutContainer(r.Container.Name), 0,
		s.r.rs.UpdateContainerResources,
		&criv1.UpdateContainerResourcesRequest{ContainerId: r.Instance.ID.ID, Linux: to})
	if err == nil {
		s.changed = true
		s.r.pods.with(s.ref.UID, func(p *podMemory) { p.resized[r.Instance.ID.ID] = amounts(s.Pod, r.Container) })
	}
	s.resized(ctx, r, began, err)
	return err
}

// resized reports the outcome of the resize of a container.
func (s *podSync) resized(ctx context.Context, r *plan.Resize, began time.Time, err error) {
	s.containerEvents(r.Container.Name).done(ctx, runtime.Record{Kind: runtime.KindResizeContainer,
		Attempt: uint32(max(0, r.Instance.RestartCount))}, began, err)
}

// checkMemory returns an error if a lower limit is below what the container uses: the kernel
// would kill a process of it. The texts are kubelet's.
func (s *podSync) checkMemory(ctx context.Context, r *plan.Resize, limit int64) error {
	before := r.Instance.Resources.Limits.Memory().Value()
	if limit <= 0 || before > 0 && limit >= before {
		return nil
	}
	resp, err := call(ctx, s.r, "ContainerStats", s.aboutContainer(r.Container.Name), 0, s.r.rs.ContainerStats,
		&criv1.ContainerStatsRequest{ContainerId: r.Instance.ID.ID})
	if err != nil {
		return fmt.Errorf("cannot decrease memory limits: reading the memory usage: %w", err)
	}
	usage := resp.GetStats().GetMemory().GetUsageBytes()
	switch {
	case usage == nil:
		return fmt.Errorf("cannot decrease memory limits: missing container %q memory usage", r.Container.Name)
	case usage.GetValue() >= uint64(limit):
		return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below "+
			"current usage (%d)",
			r.Container.Name, limit, usage.GetValue())
	}
	return nil
}
