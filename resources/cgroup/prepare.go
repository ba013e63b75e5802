package cgroup

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// reasonUnsupported is the reason of a refusal.
const reasonUnsupported = "PodLevelResourcesNotSupported"

// Admit implements [lifecycle.Admitter]. It refuses pods with limits of their own (KEP-2837) if this process may not make
// cgroups: nothing would hold these limits.
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if err := m.tree.usable(m.pods.current()); err != nil {
		return lifecycle.AdmitResponse{}, refuseLimits(req.Pod, err.Error())
	}
	return lifecycle.AdmitResponse{}, nil
}

// RefuseLimits returns an admitter for an agent without a [Manager]. It refuses pods with limits of their own (KEP-2837), which
// nothing would hold. why is the end of its message.
func RefuseLimits(why string) lifecycle.Admitter {
	return lifecycle.AdmitterFunc("limits of pods", func(req lifecycle.AdmitRequest) error { return refuseLimits(req.Pod, why) })
}

func refuseLimits(pod *v1.Pod, why string) error {
	if !resourcehelper.IsPodLevelLimitsSet(pod) {
		return nil
	}
	return lifecycle.Refuse(reasonUnsupported, "the limits in spec.resources need a cgroup of the pod, and this agent makes none: "+why)
}

// Prepare implements [lifecycle.Preparer]: it makes the cgroup of the pod, or changes it. While containers hold more than the pod
// is to have, the cgroup has room for that; it becomes smaller after them. If the cgroup is as it was left, Prepare only looks
// whether it is there.
func (m *Manager) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	var none lifecycle.PrepareResponse
	if !m.usable() {
		return none, nil
	}
	pod, policy := req.Pod, m.policy()
	w := written{cgroup: m.pods.Parent(pod), resources: PodResources(pod, policy).complete(), requests: requestsOf(pod)}
	if held := heldBy(pod, req.Observed); held != pod {
		w.resources = larger(w.resources, PodResources(held, policy).complete())
	}
	m.mu.Lock()
	before, known := m.written[pod.UID]
	m.mu.Unlock()
	exists := m.tree.exists(w.cgroup)
	same := known && before.cgroup == w.cgroup
	if exists && same && before.resources.Equal(w.resources) {
		return none, nil
	}
	if same && !exists {
		m.log.Info("The cgroup of a pod was removed by somebody else; it is made again", "pod", runtime.RefOf(pod), "cgroup", w.cgroup)
		m.lost()
	}
	m.remember(pod.UID, written{before.cgroup, before.resources, w.requests})
	err := m.makeNode()
	if err == nil {
		driver := m.pods.current()
		if exists {
			err = m.tree.set(driver, w.cgroup, w.resources)
		} else {
			err = m.tree.make(driver, w.cgroup, w.resources.fresh())
		}
	}
	if err == nil {
		m.remember(pod.UID, w)
		if m.once.forget("pod") {
			m.log.Info("The cgroups of pods can be made and changed again")
		}
		return none, nil
	}
	if m.once.first("pod", err) {
		m.log.Error(err, "The cgroup of a pod cannot be made or changed; further pods with this problem are not logged", "pod", runtime.RefOf(pod), "cgroup", w.cgroup)
		m.opts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: "FailedCreatePodContainer", Message: "unable to ensure pod container exists: " + err.Error()})
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) && !exists {
		return none, fmt.Errorf("making the cgroup %s of the pod, which has limits of its own: %w", w.cgroup, err)
	}
	return lifecycle.PrepareResponse{RetryAfter: retryAfter}, nil
}

// fresh returns the resources for a cgroup that has no limits yet.
func (r Resources) fresh() Resources {
	for _, limit := range []*int64{&r.CPUQuota, &r.MemoryMax, &r.PidsMax} {
		if *limit == None {
			*limit = 0
		}
	}
	if r.CPUQuota == 0 {
		r.CPUPeriod = 0
	}
	return r
}

// heldBy returns the pod with the resources that its containers hold by the runtime; the pod itself if these are those of its
// spec, or are not known.
func heldBy(pod *v1.Pod, observed *runtime.PodStatus) *v1.Pod {
	if observed == nil || !podspec.Resizable(pod) {
		return pod
	}
	held := pod
	for kind, c := range podspec.Containers(&pod.Spec) {
		n := observed.Newest(c.Name)
		if len(runtime.ResizeDue(pod, c, kind, n)) == 0 {
			continue
		}
		if held == pod {
			held = pod.DeepCopy()
		}
		at, _ := podspec.FindContainer(&held.Spec, c.Name)
		at.Resources = heldResources(c.Resources, n.Resources)
	}
	return held
}

// heldResources returns the resources of a container with what it holds of CPU and memory. A limit that is not in the spec may be
// that of the whole pod. A request of memory is in no cgroup, so it is that of the spec.
func heldResources(spec v1.ResourceRequirements, holds *v1.ResourceRequirements) v1.ResourceRequirements {
	out := *spec.DeepCopy()
	replace := func(list v1.ResourceList, name v1.ResourceName, q resource.Quantity, ok bool) {
		if _, given := list[name]; given && ok {
			list[name] = q
		}
	}
	cpu, ok := holds.Requests[v1.ResourceCPU]
	replace(out.Requests, v1.ResourceCPU, cpu, ok)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := holds.Limits[name]
		if !ok { // it holds no limit
			delete(out.Limits, name)
			continue
		}
		replace(out.Limits, name, q, true)
	}
	return out
}

// EditContainer implements [lifecycle.ContainerEditor]: with memory QoS it protects the memory that a container requests, and
// slows it down close to its limit.
func (m *Manager) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	if !m.opts.MemoryQoS || !m.tree.unified() {
		return runtime.ContainerEdits{}, nil
	}
	return runtime.ContainerEdits{Unified: containerMemoryQoS(pod, c, memoryQoS{
		reserve: m.opts.Policy.MemoryReservation, factor: m.opts.MemoryThrottlingFactor, allocatable: amount(m.allocatable(), v1.ResourceMemory), page: m.tree.pageSize(),
	})}, nil
}
