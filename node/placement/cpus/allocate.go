package cpus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/reuse"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ReasonSMTAlignment is that of a pod that cannot have whole cores with the option full-pcpus-only. It is kubelet's.
const ReasonSMTAlignment = "SMTAlignmentError"

// Hints returns the memory nodes on which the container, or the pod if it is nil, can have exclusive CPUs; nil if it
// requests none.
func (m *Manager) Hints(p *v1.Pod, c *v1.Container) map[string][]numa.Hint {
	n := ExclusiveOfPod(p, m.opts.WholePods)
	if c != nil {
		n = Exclusive(p, c, m.opts.WholePods)
	}
	if n == 0 || m.opts.Leave || m.held.Loaded() != nil { // Allocate returns the error
		return nil
	}
	m.held.ReleaseGone()
	m.readOnline()
	if m.held.Suspended() != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	has, right := m.assigned(p, c, n)
	hints := []numa.Hint{}
	switch {
	case !right, has.IsEmpty() && c == nil && m.isWhole(p) && checkPool(p, n) != nil: // it cannot be served
	case has.Size() == n:
		hints = m.layout.hints(has, cpuset.New(), n, m.opts.PolicyOptions)
	default:
		reusable := m.reusable(p, c)
		if c == nil {
			reusable = has
		}
		hints = m.layout.hints(m.free(cpuset.New()), reusable, n, m.opts.PolicyOptions)
	}
	return map[string][]numa.Hint{string(v1.ResourceCPU): hints}
}

// assigned returns the CPUs that the container, or the pod as a whole, or all containers of the pod, have, and whether
// each has as many as it requests. n is what the pod as a whole requests. mu is held.
func (m *Manager) assigned(p *v1.Pod, only *v1.Container, n int) (all cpuset.CPUSet, right bool) {
	right = true
	if m.pods[p.UID] == nil {
		return all, right
	}
	if set, ok := m.pods[p.UID].exclusive[whole]; ok && only == nil {
		return set, set.Size() == n
	}
	for _, c := range podspec.Containers(&p.Spec) {
		if only != nil && only.Name != c.Name {
			continue
		}
		if set, ok := m.pods[p.UID].exclusive[c.Name]; ok {
			all = all.Union(set)
			right = right && set.Size() == Exclusive(p, c, m.opts.WholePods)
		}
	}
	return all, right
}

// reusable returns the CPUs of init containers that have ended when the container starts, and that no container has
// which runs beside it. mu is held.
func (m *Manager) reusable(p *v1.Pod, container *v1.Container) (none cpuset.CPUSet) {
	known := m.pods[p.UID]
	if known == nil || container == nil {
		return none
	}
	return cpuset.New(reuse.Units(&p.Spec, container.Name,
		func(name string) []int { return known.exclusive[name].UnsortedList() })...)
}

// free returns the CPUs that can be assigned, with the reusable ones. With full-pcpus-only they are whole cores. mu is
// held.
func (m *Manager) free(reusable cpuset.CPUSet) cpuset.CPUSet {
	free := m.shared.Difference(m.reserved).Difference(m.offline).Union(reusable)
	if m.opts.PolicyOptions.FullPCPUsOnly {
		free = free.Difference(m.layout.wholeCores(m.layout.all.Difference(free)))
	}
	return free
}

// Allocate assigns exclusive CPUs to a container that requests them, near the nodes of the hint. A container that has
// some keeps them. While the manager is suspended, it fails with the [*StateError] for pods of which nothing runs yet.
func (m *Manager) Allocate(p *v1.Pod, c *v1.Container, hint numa.Hint) error {
	m.noteShares(p)
	n := Exclusive(p, c, m.opts.WholePods)
	if n == 0 {
		return nil
	}
	goesOn, err := m.held.Admit(p.UID)
	if goesOn {
		return nil
	}
	if m.opts.Leave {
		return m.held.Loaded()
	}
	var set cpuset.CPUSet
	if err == nil {
		m.readOnline()
		set, err = m.assign(p, c, n, hint.Nodes)
	}
	if err == nil && set.IsEmpty() {
		return nil
	}
	m.measure(set, err)
	if err != nil {
		return err
	}
	m.node.Logger().V(2).Info("Exclusive CPUs are assigned", "pod", runtime.RefOf(p), "container", c.Name,
		"cpus", set.String())
	m.wake.Notify()
	return nil
}

// measure measures an assignment, or its error.
func (m *Manager) measure(set cpuset.CPUSet, err error) {
	m.node.Measure(Pinned{Err: err})
	if m.opts.PolicyOptions.FullPCPUsOnly {
		m.node.Measure(Aligned{Boundary: BoundaryPhysicalCPU, Err: err})
	}
	if err == nil && m.layout.together(set, uncore) {
		m.node.Measure(Aligned{Boundary: BoundaryUncoreCache})
	}
}

// assign returns the CPUs that were assigned, none if the container has its CPUs already.
func (m *Manager) assign(p *v1.Pod, c *v1.Container, n int, nodes numa.Nodes) (none cpuset.CPUSet, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.pods[p.UID]; known != nil {
		if _, ok := known.exclusive[c.Name]; ok {
			return none, nil
		}
	}
	free := m.free(m.reusable(p, c))
	if err := m.checkCores(n, free); err != nil {
		return none, err
	}
	set, err := m.layout.takeNear(free, n, nodes, m.opts.PolicyOptions)
	if err != nil {
		return none, err
	}
	m.pod(p.UID).exclusive[c.Name] = set
	m.share()
	m.held.Changed()
	return set, nil
}

// checkCores refuses what cannot be whole cores, with the option full-pcpus-only.
func (m *Manager) checkCores(n int, free cpuset.CPUSet) error {
	perCore := m.layout.perGroup(core)
	switch {
	case !m.opts.PolicyOptions.FullPCPUsOnly:
	case n%perCore != 0:
		return lifecycle.Refuse(ReasonSMTAlignment, fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple "+
			"cpus per core = %d", n, perCore))
	case n > free.Size():
		return lifecycle.Refuse(ReasonSMTAlignment, fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: "+
			"available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free.Size(), n, perCore))
	}
	return nil
}

// HasAll reports whether the container, or the pod as a whole if it is nil, has as many exclusive CPUs as it requests;
// true if it requests none, or goes on with what it has while the manager is suspended. A pod as a whole has them also
// if its containers have some by themselves.
func (m *Manager) HasAll(p *v1.Pod, c *v1.Container) bool {
	n, name := 0, whole
	switch {
	case c != nil:
		n, name = Exclusive(p, c, m.opts.WholePods), c.Name
	case m.isWhole(p):
		n = wholeCPUs(p)
	}
	switch {
	case n == 0 || m.opts.Leave:
		return true
	case m.held.Loaded() != nil:
		return false
	case m.held.Suspended() != nil:
		return m.held.Runs(p.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[p.UID]
	if known == nil {
		return false
	}
	set, has := known.exclusive[name]
	return set.Size() == n || c == nil && !has && len(known.exclusive) > 0
}
