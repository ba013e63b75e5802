package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/holdings"
	"github.com/kubeletkit/kubeletkit/node/internal/reuse"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Manager].
type Options struct {
	// Reserved is memory that no container is given. Some memory must be reserved.
	Reserved []Reservation
	// NodeReserved is what the machine reserves: kube-reserved, system-reserved and the hard eviction threshold
	// together. As in kubelet, the sum of Reserved must be equal for memory and huge pages of each size.
	NodeReserved v1.ResourceList
	// WholePods gives memory to Guaranteed pods with resources as a whole, too (kubelet's feature gate
	// PodLevelResourceManagers, KEP-5526): if package topology places pods, to the pod, and its containers have parts
	// of that on the same nodes; otherwise to each container whose own requests of CPU and memory equal its limits.
	// Without it they get none, but keep what an earlier agent has given them.
	WholePods bool
	// Reset replaces a state that cannot be used by an empty one. Default: it is a [*StateError], and the manager is
	// suspended.
	Reset bool
	// ResetHint ends the text of a [*StateError]: how a user resets the state, such as the name of a flag.
	ResetHint string
	// ListPods lists the pods of the runtime. It is called once, if the state cannot be used, and may block. If none of
	// StateError.Pods runs, or no pod at all if there are none, as after a reboot, the manager does as with Reset. If
	// ListPods is nil or fails, the pods run that have a directory.
	ListPods func() ([]*runtime.Pod, error)
	// Leave is for an agent with the policy None, if a state of the policy Static is left, see [StaticLeft]. The
	// manager gives nothing and refuses nothing; no memory has to be reserved, and the machine is not used. When the
	// pods of the state have ended, Run removes it, so that kubelet can be started with the policy None, too.
	Leave bool
}

// Pinned is the measurement of an allocation for a container of a Guaranteed pod:
// kubelet_memory_manager_pinning_requests_total and kubelet_memory_manager_pinning_errors_total.
type Pinned struct {
	// Err is why no memory was allocated, or nil.
	Err error
}

// IsMeasurement implements [runtime.Measurement].
func (Pinned) IsMeasurement() {}

// Manager gives containers memory. It is a provider of hints for a topology manager, and joins the life of pods, see
// package lifecycle. Make one with [New]. It is safe for concurrent use.
type Manager struct {
	path    string
	held    *holdings.Record
	node    lifecycle.Node
	opts    Options
	empty   func() *machineState
	running atomic.Bool

	// mu guards the fields below. Nothing is read or written under it.
	mu sync.Mutex
	// machine is nil until the state is read.
	machine *machineState
}

var (
	_ lifecycle.Joiner          = (*Manager)(nil)
	_ lifecycle.Admitter        = (*Manager)(nil)
	_ lifecycle.Preparer        = (*Manager)(nil)
	_ lifecycle.ContainerEditor = (*Manager)(nil)
	_ lifecycle.EndedHandler    = (*Manager)(nil)
	_ lifecycle.GoneHandler     = (*Manager)(nil)
	_ lifecycle.RefusalHandler  = (*Manager)(nil)
	_ lifecycle.Runner          = (*Manager)(nil)
)

// New returns a manager of the memory of the machine with its state in the file, which kubelet has in its root
// directory under [FileName]. It reads nothing. Its error names all that is wrong with the reservations.
func New(path string, machine numa.Machine, opts Options) (*Manager, error) {
	empty := func() (*machineState, error) { return newMachineState(machine, opts.Reserved, opts.NodeReserved) }
	if opts.Leave {
		empty = func() (*machineState, error) { return &machineState{}, nil }
	}
	_, err := empty()
	if path == "" {
		err = errors.Join(errors.New("the path of the state is empty"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	m := &Manager{path: path, node: lifecycle.NopNode{}, opts: opts,
		empty: func() *machineState { s, _ := empty(); return s }}
	m.held = holdings.New(path, m.restore, m.content, m.release,
		holdings.Options{Reset: opts.Reset, Leave: opts.Leave, ListPods: opts.ListPods})
	return m, nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "memory" }

// Join implements [lifecycle.Joiner], and reads the state. Pods of the state that are gone hold nothing: those for
// which Gone of the node is true, and those without a directory below RootDir. It fails if the disk does not return the
// state.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node = node
	m.held.Join(node)
	return m.held.Load()
}

// State returns why the state could not be used when it was read, a [*StateError], and whether it was dropped. With
// Options.Leave it is dropped also without a problem, if nothing is left of its pods.
func (m *Manager) State() (problem error, dropped bool) { return m.held.State() }

// counts reports whether the pod or its containers are given memory.
func (m *Manager) counts(pod *v1.Pod) bool {
	return !m.opts.Leave && podspec.QOSClass(pod) == v1.PodQOSGuaranteed && (m.opts.WholePods || !isWhole(pod))
}

// Run writes the state, as kubelet does when it starts, and later what could not be written. It implements
// [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return fmt.Errorf("memory: %w", runtime.ErrAlreadyRunning)
	}
	m.held.Run(ctx, m.node.Logger())
	return nil
}

// Hints returns the sets of nodes on which the container or, if it is nil, the pod can have its memory, by the
// resources that it requests: nil if it needs none, or has no choice. If no nodes have the memory, Allocate refuses the
// pod, as in kubelet.
func (m *Manager) Hints(pod *v1.Pod, container *v1.Container) map[string][]numa.Hint {
	if !m.counts(pod) || m.held.Loaded() != nil || m.held.Suspended() != nil {
		return nil
	}
	m.held.ReleaseGone()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.podHints(pod, container)
}

// Allocate gives the container memory on the nodes of the hint, or on more nodes if these do not suffice. A container
// that has memory keeps it. The error refuses the pod with the reason UnexpectedAdmissionError, as in kubelet. While
// the manager is suspended, it refuses pods of which nothing runs yet.
func (m *Manager) Allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	if !m.counts(pod) {
		return nil
	}
	goesOn, err := m.held.Admit(pod.UID)
	if goesOn {
		return nil
	}
	if err == nil {
		err = m.allocate(pod, container, hint)
	}
	m.node.Measure(Pinned{Err: err})
	if err != nil {
		return lifecycle.Refuse("UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to [memorymanager] "+
			"container %q: %v, which is unexpected",
			container.Name, err))
	}
	return nil
}

// AllocatePod gives a pod with resources as a whole its memory on the nodes of the hint, or on more nodes if these do
// not suffice, and each container its part of that. It reports whether Allocate is not to be called for the containers:
// without Options.WholePods, for another pod, and for one whose containers have memory by themselves already, it does
// nothing. A pod that has its memory keeps it. Errors are those of Allocate, and a refusal with [ReasonEmptyPool].
func (m *Manager) AllocatePod(pod *v1.Pod, hint numa.Hint) (done bool, _ error) {
	if !m.counts(pod) || !isWhole(pod) {
		return false, nil
	}
	goesOn, err := m.held.Admit(pod.UID)
	if goesOn {
		return true, nil
	}
	if err == nil {
		m.mu.Lock()
		var changed bool
		if done, changed, err = m.machine.allocatePod(pod, hint); changed {
			m.held.Changed()
		}
		m.mu.Unlock()
		if err == nil && !changed {
			return done, nil
		}
	}
	m.node.Measure(Pinned{Err: err})
	if refusal := (*runtime.TerminalError)(nil); errors.As(err, &refusal) {
		return true, err
	}
	if err != nil {
		return true, lifecycle.Refuse("UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to "+
			"[memorymanager] the pod as a whole: %v, which is unexpected", err))
	}
	return true, nil
}

func (m *Manager) allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, err := m.machine.allocate(pod, container, hint)
	if changed {
		m.held.Changed()
	}
	return err
}

// Admit refuses resizes of the memory of Guaranteed pods, as in kubelet. It implements [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if m.opts.Leave || req.Held == nil || podspec.QOSClass(req.Pod) != v1.PodQOSGuaranteed {
		return lifecycle.AdmitResponse{}, nil
	}
	infeasible := &runtime.TerminalError{Reason: v1.PodReasonInfeasible,
		Message: `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`,
		Detail:  "guaranteed_pod_memory_manager_static_policy"}
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		held, _ := podspec.FindContainer(&req.Held.Spec, c.Name)
		if kind == podspec.EphemeralContainer || held == nil {
			continue
		}
		if q := c.Resources.Requests[v1.ResourceMemory]; q.Cmp(held.Resources.Requests[v1.ResourceMemory]) != 0 {
			return lifecycle.AdmitResponse{}, infeasible
		}
	}
	request, err := requestOfPod(req.Pod)
	for _, b := range m.OfPod(req.Pod.UID) {
		if err != nil || request[b.Resource] != b.Size {
			return lifecycle.AdmitResponse{}, infeasible
		}
	}
	return lifecycle.AdmitResponse{}, nil
}

// Prepare writes the state, if the pod has memory that is not in it. It implements [lifecycle.Preparer].
func (m *Manager) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	if !m.counts(req.Pod) && !m.has(req.Pod.UID) {
		return lifecycle.PrepareResponse{}, nil
	}
	if err := m.held.Save(); err != nil {
		return lifecycle.PrepareResponse{}, fmt.Errorf("pod %s: %w", runtime.RefOf(req.Pod), err)
	}
	return lifecycle.PrepareResponse{}, nil
}

// EditContainer returns the memory nodes of the container, and gives back what earlier init containers have. It
// implements [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(ctx context.Context, pod *v1.Pod,
	container *v1.Container) (runtime.ContainerEdits, error) {
	if _, kind := podspec.FindContainer(&pod.Spec, container.Name); !m.counts(pod) && !m.has(pod.UID) ||
		kind == podspec.EphemeralContainer || runtime.ForResize(ctx) {
		return runtime.ContainerEdits{}, nil // ephemeral containers run beside init containers, and request nothing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held.GoesOn(pod.UID) {
		return runtime.ContainerEdits{}, nil
	}
	own, err := requestOfContainer(pod, container)
	if m.machine == nil || (len(own) > 0 || err != nil) && len(m.machine.entries[string(pod.UID)]) == 0 {
		return runtime.ContainerEdits{}, fmt.Errorf("container %q of pod %s has no memory: the pod was not admitted",
			container.Name, runtime.RefOf(pod))
	}
	for _, init := range reuse.Ended(&pod.Spec, container.Name) {
		if m.machine.passOn(string(pod.UID), init) {
			m.held.Changed()
		}
	}
	var nodes numa.Nodes
	for _, b := range m.machine.entries[string(pod.UID)][container.Name] {
		nodes |= numa.Of(b.NUMAAffinity...)
	}
	return runtime.ContainerEdits{MemorySet: nodes.String()}, nil
}

// Ended gives back the memory of the pod. It implements [lifecycle.EndedHandler].
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// Gone gives back the memory of the pod, if it still has some. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// Refused gives back the memory of a pod that was refused. It implements [lifecycle.RefusalHandler].
func (m *Manager) Refused(pod *v1.Pod) { m.held.Refused(pod.UID) }

// release gives back the memory of a pod.
func (m *Manager) release(uid types.UID) (changed bool, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine != nil && m.machine.dropPod(string(uid)), nil
}

// Of returns what the container has.
func (m *Manager) Of(pod types.UID, container string) []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.machine == nil {
		return nil
	}
	return exported(m.machine.entries[string(pod)][container])
}

// Exclusive is Of without what the container shares with others of a pod with resources as a whole.
func (m *Manager) Exclusive(pod *v1.Pod, container *v1.Container) []Block {
	if isWhole(pod) && !podspec.HasGuaranteedResources(container) {
		return nil
	}
	return m.Of(pod.UID, container.Name)
}

// OfPod returns what a pod with resources as a whole has; nothing if only its containers have some.
func (m *Manager) OfPod(pod types.UID) []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.machine == nil {
		return nil
	}
	return exported(m.machine.pods[string(pod)].MemoryBlocks)
}

// has reports whether the pod has memory, such as one of an earlier agent with other options.
func (m *Manager) has(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.opts.Leave && m.machine != nil && len(m.machine.entries[string(pod)]) > 0
}

// Allocatable returns what containers can have of each node, in the order of nodes and resources.
func (m *Manager) Allocatable() (list []Block) {
	s := m.empty()
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		for _, name := range slices.Sorted(maps.Keys(s.nodes[id].MemoryMap)) {
			if size := s.table(id, name).Allocatable; size > 0 {
				list = append(list, Block{Nodes: numa.Of(id), Resource: name, Size: size})
			}
		}
	}
	return list
}

// HasAll reports whether the container, or the pod as a whole if it is nil, has the memory that it requests, or was an
// init container that has returned it; true if it requests none, or goes on with what it has while the manager is
// suspended. A pod as a whole has it also if its containers have some by themselves.
func (m *Manager) HasAll(pod *v1.Pod, container *v1.Container) bool {
	if !m.counts(pod) || container == nil && !isWhole(pod) {
		return true
	}
	request, err := requestOfPod(pod)
	if container != nil {
		request, err = requestOfContainer(pod, container)
	}
	if err != nil { // Allocate has the error
		return false
	}
	if len(request) == 0 {
		return true
	}
	switch {
	case m.held.Loaded() != nil:
		return false
	case m.held.Suspended() != nil:
		return m.held.Runs(pod.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if container == nil {
		return len(m.machine.entries[string(pod.UID)]) > 0
	}
	_, held := m.machine.entries[string(pod.UID)][container.Name]
	return held || m.machine.passed(pod, container.Name)
}
