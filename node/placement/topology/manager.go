package topology

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The reasons and texts of pods that are refused. They are kubelet's; the message of ReasonAffinity goes on with the
// nodes of each resource.
const (
	// ReasonAffinity is that of a pod whose resources are not on nodes that the policy accepts.
	ReasonAffinity = "TopologyAffinityError"
	// ReasonUnexpected is that of a pod for which a provider fails without a reason of its own.
	ReasonUnexpected = "UnexpectedAdmissionError"

	messageAffinity = "Resources cannot be allocated with Topology locality"
)

// Scope is that for which hints are merged.
type Scope string

// The scopes. They are kubelet's.
const (
	ScopeContainer Scope = "container"
	ScopePod       Scope = "pod"
)

// Provider allocates resources to containers. Its methods are called from one goroutine and must not block. Objects are
// read-only. A provider is also a component of the agent: what it has given to a pod that is not admitted after all, it
// takes back as a [lifecycle.RefusalHandler].
type Provider interface {
	// Name is the name of the provider in errors and logs.
	Name() string
	// Hints returns, for each resource that the container requests of the provider, the sets of nodes that can serve
	// it. A resource with an empty list that is not nil cannot be served; a nil list or no resource means that there is
	// no preference. If container is nil, the hints are for the pod as a whole. For a container that has its resources
	// already, they are those of what it has.
	Hints(pod *v1.Pod, container *v1.Container) map[string][]numa.Hint
	// Allocate gives the container what it requests, near the nodes of the hint; no nodes means anywhere. It is
	// idempotent: a container that has its resources keeps them. An error that wraps a [*runtime.TerminalError] refuses
	// the pod with that reason.
	Allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error
	// AllocatePod gives the pod what it requests as a whole (PodSpec.Resources), near the nodes of the hint, and its
	// containers their parts of that. It reports whether that is all that the containers get: Allocate is not called
	// for them then. It is called with [ScopePod] and a policy. A provider that knows resources of containers only
	// returns false. Otherwise it is as Allocate.
	AllocatePod(pod *v1.Pod, hint numa.Hint) (done bool, err error)
	// HasAll reports whether the container has all that it requests of the provider already, such as in the checkpoint
	// of an earlier agent; true if it requests nothing. If container is nil, it is about what AllocatePod gives.
	HasAll(pod *v1.Pod, container *v1.Container) bool
}

// Options are the settings of a [Manager]. The zero value is kubelet's default.
type Options struct {
	// Policy merges hints. If nil, there are none: the providers allocate anywhere.
	Policy Policy
	// Scope is that of the policy. Default: [ScopeContainer].
	Scope Scope
}

// Admitted is the measurement of an admission of a pod: kubelet_topology_manager_admission_requests_total and the
// others of admissions.
type Admitted struct {
	Took time.Duration
	// Err is why the pod was refused, or nil.
	Err error
}

// Aligned is the measurement of hints that were merged for a scope by the policy single-numa-node:
// kubelet_container_aligned_compute_resources_count with the boundary numa_node.
type Aligned struct {
	Scope Scope
	// Err is why the resources cannot be on one memory node, or nil.
	Err error
}

// IsMeasurement implements [runtime.Measurement].
func (Admitted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Aligned) IsMeasurement() {}

// Manager admits pods whose resources can be placed as the policy requires, and has them allocated. Make one with
// [New]. Admit is called from one goroutine.
type Manager struct {
	opts      Options
	node      lifecycle.Node
	log       logr.Logger // for the decisions, at level 4
	providers []Provider
}

var (
	_ lifecycle.Joiner   = (*Manager)(nil)
	_ lifecycle.Admitter = (*Manager)(nil)
)

// New returns a manager. Its error is about the scope.
func New(opts Options) (*Manager, error) {
	switch opts.Scope {
	case "":
		opts.Scope = ScopeContainer
	case ScopeContainer, ScopePod:
	default:
		return nil, fmt.Errorf("topology: scope %q must be %s or %s", opts.Scope, ScopeContainer, ScopePod)
	}
	m := &Manager{opts: opts}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. The components of the agent that are a [Provider] allocate in their order, see
// [lifecycle.Sort]. A provider that also admits pods by itself declares that it comes after "topology", as a
// devices.Manager does: otherwise it chooses without hints. What refuses pods declares that it comes before "topology",
// so that a pod that is refused is given nothing.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log, m.providers = node, node.Logger(), nil
	for _, c := range node.Components() {
		if p, ok := c.(Provider); ok {
			m.providers = append(m.providers, p)
		}
	}
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "topology" }

// Admit allocates the resources of the pod. A pod that is resized keeps what it has. It implements
// [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (none lifecycle.AdmitResponse, err error) {
	if req.Held != nil {
		return none, nil
	}
	began := time.Now()
	err = m.admit(req.Pod)
	m.node.Measure(Admitted{Took: time.Since(began), Err: err})
	return none, err
}

func (m *Manager) admit(pod *v1.Pod) error {
	var hint numa.Hint
	held := m.held(pod) // before anything is allocated
	if m.opts.Policy != nil && m.opts.Scope == ScopePod {
		var err error
		if hint, err = m.merge(pod, nil, held); err != nil {
			return err
		}
	}
	providers, err := m.allocatePod(pod, hint)
	if err != nil {
		return err
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.EphemeralContainer { // they have no resources
			continue
		}
		if m.opts.Policy != nil && m.opts.Scope == ScopeContainer {
			var err error
			if hint, err = m.merge(pod, c, held); err != nil {
				return err
			}
		}
		for _, p := range providers {
			if err := p.Allocate(pod, c, hint); err != nil {
				return explain(err)
			}
		}
	}
	return nil
}

// allocatePod has the providers allocate for the pod as a whole, with the scope pod, and returns those that allocate
// for its containers.
func (m *Manager) allocatePod(pod *v1.Pod, hint numa.Hint) ([]Provider, error) {
	if m.opts.Policy == nil || m.opts.Scope != ScopePod {
		return m.providers, nil
	}
	var rest []Provider
	for _, p := range m.providers {
		done, err := p.AllocatePod(pod, hint)
		if err != nil {
			return nil, explain(err)
		}
		if !done {
			rest = append(rest, p)
		}
	}
	return rest, nil
}

// held reports whether the pod and all its containers hold all that they request, so that no policy can place them
// elsewhere.
func (m *Manager) held(pod *v1.Pod) bool {
	if m.opts.Policy == nil {
		return false // nothing is refused
	}
	if m.opts.Scope == ScopePod && slices.ContainsFunc(m.providers,
		func(p Provider) bool { return !p.HasAll(pod, nil) }) {
		return false
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind != podspec.EphemeralContainer && slices.ContainsFunc(m.providers,
			func(p Provider) bool { return !p.HasAll(pod, c) }) {
			return false
		}
	}
	return true
}

// merge returns the hint of a container, or of the pod if c is nil. A pod that holds all that it requests is not
// refused: it was admitted by an earlier agent, with another policy, and may run. kubelet ends it.
func (m *Manager) merge(pod *v1.Pod, c *v1.Container, held bool) (numa.Hint, error) {
	hints := make([]map[string][]numa.Hint, len(m.providers))
	for i, p := range m.providers {
		hints[i] = p.Hints(pod, c)
	}
	best, admit := m.opts.Policy.Merge(hints)
	name := ""
	if c != nil {
		name = c.Name
	}
	if log := m.log.V(4); log.Enabled() {
		log.Info("Hints were merged", "pod", runtime.RefOf(pod), "container", name, "policy", m.opts.Policy.Name(),
			"hints", hints,
			"nodes", best.Nodes.String(), "preferred", best.Preferred, "admit", admit, "held", held)
	}
	var err error
	switch {
	case !admit && held && slices.ContainsFunc(hints, func(h map[string][]numa.Hint) bool { return len(h) > 0 }):
		return numa.Hint{}, nil
	case !admit:
		message := messageAffinity
		if why := conflict(name, hints); why != "" {
			message += ": " + why
		}
		err = lifecycle.Refuse(ReasonAffinity, message)
	}
	if m.opts.Policy.Name() == PolicySingleNUMANode {
		m.node.Measure(Aligned{Scope: m.opts.Scope, Err: err})
	}
	return best, err
}

// explain returns the refusal of a provider's error, in kubelet's words.
func explain(err error) error {
	if refusal := (*runtime.TerminalError)(nil); errors.As(err, &refusal) {
		return err
	}
	return lifecycle.Refuse(ReasonUnexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err))
}
