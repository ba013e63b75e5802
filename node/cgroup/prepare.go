package cgroup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// reasonUnsupported is the reason of a refusal of a pod; a resize is refused as infeasible.
const reasonUnsupported = "PodLevelResourcesNotSupported"

// Admit implements [lifecycle.Admitter]. It refuses pods with limits of their own (KEP-2837) if this process may not
// make cgroups: nothing would hold these limits.
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if err := m.tree.usable(m.pods.current()); err != nil {
		return lifecycle.AdmitResponse{}, refuseLimits(req, err.Error())
	}
	return lifecycle.AdmitResponse{}, nil
}

// RefuseLimits returns an admitter for an agent without a [Manager]. It refuses pods with limits of their own
// (KEP-2837), which nothing would hold. why is the end of its message.
func RefuseLimits(why string) lifecycle.Admitter {
	return limitsRefuser{lifecycle.AdmitterFunc("limits of pods",
		func(req lifecycle.AdmitRequest) error { return refuseLimits(req, why) })}
}

type limitsRefuser struct{ lifecycle.Admitter }

// Order implements [lifecycle.Ordered].
func (limitsRefuser) Order() lifecycle.Order { return beforeAllocation() }

// beforeAllocation is the order of what refuses pods: a pod that is refused is given no CPUs, memory or devices.
func beforeAllocation() lifecycle.Order { return lifecycle.Order{Before: []string{"topology"}} }

func refuseLimits(req lifecycle.AdmitRequest, why string) error {
	if !resourcehelper.IsPodLevelLimitsSet(req.Pod) {
		return nil
	}
	reason := reasonUnsupported
	if req.Held != nil {
		reason = v1.PodReasonInfeasible
	}
	return lifecycle.Refuse(reason,
		"the limits in spec.resources need a cgroup of the pod, and this agent makes none: "+why)
}

// Prepare implements [lifecycle.Preparer]: it makes the cgroup of the pod, or changes it. While containers hold more
// than the pod is to have, the cgroup has room for that; it becomes smaller after them. If the cgroup is as it was
// left, Prepare only looks whether it is there.
func (m *Manager) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	var none lifecycle.PrepareResponse
	if !m.usable() {
		return none, nil
	}
	pod, policy := req.Pod, m.policy()
	policy.NoCPUQuota = policy.NoCPUQuota ||
		slices.ContainsFunc(m.owners, func(o CPUOwner) bool { return o.NoCPUQuota(pod) })
	w := written{cgroup: m.pods.Parent(pod), resources: PodResources(pod, policy).complete(), requests: requestsOf(pod)}
	due := resizing(pod, req.Observed, policy.NoCPUQuota)
	m.mu.Lock()
	before, known := m.written[pod.UID]
	m.mu.Unlock()
	exists := m.tree.exists(w.cgroup)
	same := known && before.cgroup == w.cgroup
	if exists && same && !due.any() && before.resources.Equal(w.resources) {
		return none, nil
	}
	if same && !exists {
		m.log.Info("The cgroup of a pod was removed by somebody else; it is made again", "pod", runtime.RefOf(pod),
			"cgroup", w.cgroup)
		m.lost()
	}
	// What a resize changes.
	changed, inForce := false, written{before.cgroup, before.resources, w.requests}
	if exists {
		current, ok := before.resources, same
		if !ok {
			var err error
			current, err = m.tree.read(w.cgroup, w.resources)
			ok = err == nil // otherwise setting them fails, too
		}
		if ok {
			inForce = written{w.cgroup, current, w.requests}
			if message := m.belowUsage(pod, w.cgroup, current.MemoryMax, w.resources.MemoryMax); message != "" {
				m.remember(pod.UID, inForce)
				return lifecycle.PrepareResponse{ResizeError: message}, nil
			}
			w.resources = w.resources.withRoom(current, due)
			changed = !w.resources.sameSize(current)
		}
		if same && before.resources.Equal(w.resources) {
			m.remember(pod.UID, w)
			return none, nil
		}
	}
	m.remember(pod.UID, inForce)
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
		return lifecycle.PrepareResponse{Changed: changed}, nil
	}
	if m.once.first("pod", err) {
		m.log.Error(err, "The cgroup of a pod cannot be made or changed; further pods with this problem are not logged",
			"pod", runtime.RefOf(pod), "cgroup", w.cgroup)
		m.node.Event(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning,
			Reason: "FailedCreatePodContainer", Message: "unable to ensure pod container exists: " + err.Error(),
			Logged: true})
	}
	switch {
	case resourcehelper.IsPodLevelLimitsSet(pod) && !exists:
		return none, fmt.Errorf("making the cgroup %s of the pod, which has limits of its own: %w", w.cgroup, err)
	case changed && podspec.Resizable(pod):
		return lifecycle.PrepareResponse{ResizeError: "setting the cgroup " + w.cgroup + " of the pod: " + err.Error()},
			nil
	}
	return lifecycle.PrepareResponse{RetryAfter: retryAfter}, nil
}

// belowUsage returns why the limit of memory of a pod that is resized cannot become smaller: the kernel would kill a
// process of it. It returns "" if it can, or is not to. The texts are kubelet's (validateMemoryResizeAction).
func (m *Manager) belowUsage(pod *v1.Pod, cgroup string, from, to int64) string {
	if to == None || from != None && to >= from || !podspec.Resizable(pod) {
		return ""
	}
	usage, err := m.tree.memoryUsage(cgroup)
	switch {
	case err != nil:
		return "cannot decrease memory limits: reading the memory usage of the pod: " + err.Error()
	case usage >= to:
		return fmt.Sprintf(
			"cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)", to,
			usage)
	}
	return ""
}

// fresh returns the resources for a cgroup that has no limits yet.
func (r Resources) fresh() Resources {
	for _, limit := range []*int64{&r.CPUQuota, &r.MemoryMax, &r.MemoryHigh, &r.PidsMax} {
		if *limit == None {
			*limit = 0
		}
	}
	if r.CPUQuota == 0 {
		r.CPUPeriod = 0
	}
	return r
}

// sizes says which of CPU and memory containers hold in other amounts than the spec has.
type sizes struct{ cpu, memory bool }

func (s sizes) any() bool { return s.cpu || s.memory }

// resizing returns what containers of the pod are to be given. Where limits of CPU are not enforced, no container has
// the one of its spec.
func resizing(pod *v1.Pod, observed *runtime.PodStatus, noCPUQuota bool) (due sizes) {
	if observed == nil || !podspec.Resizable(pod) {
		return due
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		n := observed.Newest(c.Name)
		if noCPUQuota && n != nil && n.Resources != nil {
			with := *n
			with.Resources = &v1.ResourceRequirements{Requests: n.Resources.Requests,
				Limits: maps.Clone(n.Resources.Limits)}
			if with.Resources.Limits == nil {
				with.Resources.Limits = v1.ResourceList{}
			}
			with.Resources.Limits[v1.ResourceCPU] = podspec.LimitOf(pod, c, v1.ResourceCPU)
			n = &with
		}
		for _, name := range runtime.ResizeDue(pod, c, kind, n) {
			due.cpu = due.cpu || name == v1.ResourceCPU
			due.memory = due.memory || name == v1.ResourceMemory
		}
	}
	return due
}

// EditContainer implements [lifecycle.ContainerEditor]: with memory QoS it protects the memory that a container
// requests, and slows it down close to its limit.
func (m *Manager) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	switch {
	case !m.tree.unified():
		return runtime.ContainerEdits{}, nil
	case !m.opts.MemoryQoS: // a container may be slowed down since it was started with the gate on
		return runtime.ContainerEdits{Unified: map[string]string{"memory.high": "max"}}, nil
	}
	return runtime.ContainerEdits{
		Unified: containerMemoryQoS(pod, c, m.policy(), amount(m.allocatable(), v1.ResourceMemory))}, nil
}
