package cpus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ReasonEmptyPool is that of a pod with resources as a whole whose containers with exclusive CPUs leave none for its
// other containers. It is kubelet's.
const ReasonEmptyPool = "EmptyPodSharedPoolError"

// whole is the name under which a pod has the CPUs that it has as a whole. Those of its containers are among them.
const whole = ""

// wholeCPUs returns how many CPUs a pod with resources as a whole gets: what it requests, if it is Guaranteed and the
// request is whole; 0 otherwise.
func wholeCPUs(pod *v1.Pod) int {
	if !resourcehelper.IsPodLevelResourcesSet(pod) || podspec.QOSClass(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	return wholeNumber(pod.Spec.Resources.Requests[v1.ResourceCPU])
}

// checkPool returns an error if containers of a pod with so many CPUs as a whole share what others of it leave, and
// these leave nothing.
func checkPool(pod *v1.Pod, n int) error {
	taken, shares := 0, false
	for kind, c := range podspec.Containers(&pod.Spec) {
		own := Exclusive(pod, c, true)
		lasts := kind == podspec.MainContainer || podspec.IsSidecar(c)
		switch {
		case kind == podspec.EphemeralContainer:
		case lasts:
			taken += own
			shares = shares || own == 0
		case own == 0 && taken >= n:
			return lifecycle.Refuse(ReasonEmptyPool, fmt.Sprintf("pod rejected, pod has shared init containers but "+
				"no cpus available for them: the sidecars before %q have all %d; request more for the pod as a whole",
				c.Name, n))
		}
	}
	if shares && taken >= n {
		return lifecycle.Refuse(ReasonEmptyPool, fmt.Sprintf("pod rejected, sum of exclusive container cpu requests "+
			"equals pod budget, leaving no cpus for shared containers: both are %d; request more for the pod as a "+
			"whole", n))
	}
	return nil
}

// Partition returns which of the CPUs that a pod with resources as a whole has each of its containers gets. Containers
// with exclusive CPUs, see [Exclusive], get theirs; an init container leaves them to those after it. An init container
// without gets all that the sidecars before it leave. The other containers share what is left. It is a pure function,
// and divides as kubelet does. It fails if there are too few CPUs.
func Partition(machine numa.Machine, pod *v1.Pod, cpus cpuset.CPUSet, opts PolicyOptions) (map[string]cpuset.CPUSet,
	error) {
	return newLayout(machine).partition(pod, cpus, opts)
}

func (l *layout) partition(pod *v1.Pod, left cpuset.CPUSet, opts PolicyOptions) (map[string]cpuset.CPUSet, error) {
	parts := map[string]cpuset.CPUSet{}
	for kind, c := range podspec.Containers(&pod.Spec) {
		lasts := kind == podspec.MainContainer || podspec.IsSidecar(c)
		own := Exclusive(pod, c, true)
		switch {
		case kind == podspec.EphemeralContainer:
		case own > 0:
			set, err := l.take(left, own, opts)
			if err != nil {
				return nil, fmt.Errorf("container %q of the pod as a whole: %w", c.Name, err)
			}
			parts[c.Name] = set
			if lasts {
				left = left.Difference(set)
			}
		case !lasts:
			parts[c.Name] = left
		}
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if _, has := parts[c.Name]; !has && kind != podspec.EphemeralContainer {
			parts[c.Name] = left
		}
	}
	return parts, nil
}

// isWhole reports whether the pod is given CPUs as a whole, or its containers by their own resources.
func (m *Manager) isWhole(p *v1.Pod) bool {
	return m.opts.WholePods && !m.opts.Leave && resourcehelper.IsPodLevelResourcesSet(p)
}

// AllocatePod gives a pod with resources as a whole its CPUs, near the nodes of the hint, and each container its part
// of them, see [Partition]. It reports whether Allocate is not to be called for the containers: without
// Options.WholePods, for another pod, and for one whose containers have CPUs by themselves already, it does nothing. A
// pod that has its CPUs keeps them. Errors are those of Allocate, and a refusal with [ReasonEmptyPool].
func (m *Manager) AllocatePod(p *v1.Pod, hint numa.Hint) (done bool, _ error) {
	if !m.isWhole(p) {
		return false, nil
	}
	n := wholeCPUs(p)
	m.mu.Lock()
	m.pod(p.UID).asWhole = true
	m.mu.Unlock()
	if n == 0 {
		return true, nil
	}
	goesOn, err := m.held.Admit(p.UID)
	if goesOn {
		return true, nil
	}
	var set cpuset.CPUSet
	if err == nil {
		m.readOnline()
		set, done, err = m.assignWhole(p, n, hint.Nodes)
	}
	if err == nil && set.IsEmpty() {
		return done, nil
	}
	m.measureWhole(p, set, err)
	if err != nil {
		return true, err
	}
	m.node.Logger().V(2).Info("CPUs are assigned to a pod as a whole", "pod", runtime.RefOf(p), "cpus", set.String())
	m.wake.Notify()
	return true, nil
}

// measureWhole measures an assignment to a pod as a whole, or its error.
func (m *Manager) measureWhole(p *v1.Pod, set cpuset.CPUSet, err error) {
	if err != nil {
		m.node.Measure(Pinned{Err: err})
		return
	}
	for _, c := range podspec.Containers(&p.Spec) {
		if Exclusive(p, c, true) > 0 {
			m.node.Measure(Pinned{})
		}
	}
	if m.layout.together(set, uncore) {
		m.node.Measure(Aligned{Boundary: BoundaryUncoreCache})
	}
}

// assignWhole returns the CPUs that the pod was assigned as a whole, none if it has some already. done is false if its
// containers have some by themselves.
func (m *Manager) assignWhole(p *v1.Pod, n int, nodes numa.Nodes) (set cpuset.CPUSet, done bool, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pod(p.UID)
	if _, done := known.exclusive[whole]; done || len(known.exclusive) > 0 {
		known.asWhole = done
		known.note(p)
		return set, done, nil
	}
	if err := checkPool(p, n); err != nil {
		return set, true, err
	}
	free := m.free(cpuset.New())
	if err := m.checkCores(n, free); err != nil {
		return set, true, err
	}
	set, err := m.layout.takeNear(free, n, nodes, m.opts.PolicyOptions)
	if err != nil {
		return set, true, err
	}
	parts, err := m.layout.partition(p, set, m.opts.PolicyOptions)
	if err != nil {
		return set, true, err
	}
	parts[whole] = set
	known.exclusive = parts
	known.note(p)
	m.share()
	m.held.Changed()
	return set, true, nil
}

// noteShares is note for a pod that may have no CPUs as a whole.
func (m *Manager) noteShares(p *v1.Pod) {
	if !resourcehelper.IsPodLevelResourcesSet(p) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.pods[p.UID]; known != nil {
		known.note(p)
	}
}

// note notes which containers of a pod with CPUs as a whole share them: the checkpoint does not have that. mu is held.
func (k *pod) note(p *v1.Pod) {
	if _, ok := k.exclusive[whole]; !ok {
		return
	}
	k.own = map[string]bool{}
	for _, c := range podspec.Containers(&p.Spec) {
		k.own[c.Name] = Exclusive(p, c, true) > 0
	}
}

// isolated returns the CPUs that are those of this container only; false if it shares those of its pod or of the node.
func (k *pod) isolated(container string) (set cpuset.CPUSet, ok bool) {
	if _, pooled := k.exclusive[whole]; pooled && !k.own[container] || container == whole {
		return set, false
	}
	set, ok = k.exclusive[container]
	return set, ok
}

// OfPod returns the CPUs that a pod with resources as a whole has; none if it has none, or only its containers have
// some.
func (m *Manager) OfPod(uid types.UID) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		return p.exclusive[whole].Clone()
	}
	return cpuset.New()
}
