package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
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
	// Gone reports whether nothing of the pod is left, so that Restore gives back what it holds: its end was reported
	// to an earlier agent, if at all. It must not block. It is called in Restore and, while the manager is suspended,
	// for each pod that requests memory: one that is not gone runs already, and is not refused. So it must be true for
	// a pod of which nothing was started yet, for which Parts.Gone of an agent alone is false. If nil, a pod of the
	// state keeps its memory, and a manager that is suspended refuses all others.
	Gone func(uid types.UID) bool
	// Reset replaces a state that cannot be used by an empty one. Default: Restore fails with a [*StateError].
	Reset bool
	// ResetHint ends the text of a [*StateError]: how a user resets the state, such as the name of a flag.
	ResetHint string
	// Pinned is called after each allocation for a container of a Guaranteed pod, with its error. It must not block.
	// Default: nothing.
	Pinned func(err error)
	// Logger is for problems that concern no single pod. Default: that of package slog.
	Logger logr.Logger
}

// Manager gives containers memory. It is a provider of hints for a topology manager, and joins the life of pods, see
// package lifecycle. Make one with [New]. It is safe for concurrent use.
type Manager struct {
	path    string
	file    *checkpoint.File
	opts    Options
	empty   func() *machineState
	running atomic.Bool

	// mu guards the fields below. Nothing is read or written under it.
	mu sync.Mutex
	// machine is nil until the state is read.
	machine *machineState
	// changes is the number of changes of the machine state.
	changes uint64
	// suspended is why nothing is given; nil if the state fits. Then the file stays as it is.
	suspended *StateError
	// holding are the pods of the state that have not ended, while the manager is suspended; nil if the file cannot be
	// read.
	holding map[types.UID]bool
	// admittedWhileSuspended are the pods that were admitted while the manager was suspended: they have no memory of
	// chosen nodes.
	admittedWhileSuspended map[types.UID]bool
}

var (
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
	opts.Logger = logging.OrDefault(opts.Logger)
	_, err := newMachineState(machine, opts.Reserved, opts.NodeReserved)
	if path == "" {
		err = errors.Join(errors.New("the path of the state is empty"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if opts.Pinned == nil {
		opts.Pinned = func(error) {}
	}
	empty := func() *machineState {
		s, _ := newMachineState(machine, opts.Reserved, opts.NodeReserved)
		return s
	}
	m := &Manager{path: path, opts: opts, empty: empty, admittedWhileSuspended: map[types.UID]bool{}}
	m.file = checkpoint.New(path, m.restore, m.content)
	return m, nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "memory" }

// Run writes the state, as kubelet does when it starts, and later what could not be written. It implements
// [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return fmt.Errorf("memory: %w", runtime.ErrAlreadyRunning)
	}
	m.file.Run(ctx, m.opts.Logger)
	return nil
}

// Hints returns the sets of nodes on which the container or, if it is nil, the pod can have its memory, by the
// resources that it requests: nil if it needs none, or has no choice. If no nodes have the memory, Allocate refuses the
// pod, as in kubelet.
func (m *Manager) Hints(pod *v1.Pod, container *v1.Container) map[string][]numa.Hint {
	if !counts(pod) || m.file.Loaded() != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspended != nil {
		return nil
	}
	return m.machine.podHints(pod, container)
}

// Allocate gives the container memory on the nodes of the hint, or on more nodes if these do not suffice. A container
// that has memory keeps it. The error refuses the pod with the reason UnexpectedAdmissionError, as in kubelet. While
// the manager is suspended, it refuses pods of which nothing runs yet.
func (m *Manager) Allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	if !counts(pod) {
		return nil
	}
	err := m.stateError(m.file.Loaded())
	switch suspended := (*StateError)(nil); {
	case err == nil:
		err = m.allocate(pod, container, hint)
	case errors.As(err, &suspended) && m.admitSuspended(pod.UID):
		return nil
	}
	m.opts.Pinned(err)
	if err != nil {
		return lifecycle.Refuse("UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to [memorymanager] "+
			"container %q: %v, which is unexpected",
			container.Name, err))
	}
	return nil
}

func (m *Manager) allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, err := m.machine.allocate(pod, container, hint)
	if changed {
		m.changes++
	}
	return err
}

// Admit refuses resizes of the memory of Guaranteed pods, as in kubelet. It implements [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if req.Held == nil || podspec.QOSClass(req.Pod) != v1.PodQOSGuaranteed {
		return lifecycle.AdmitResponse{}, nil
	}
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		held, _ := podspec.FindContainer(&req.Held.Spec, c.Name)
		if kind == podspec.EphemeralContainer || held == nil {
			continue
		}
		if q := c.Resources.Requests[v1.ResourceMemory]; q.Cmp(held.Resources.Requests[v1.ResourceMemory]) != 0 {
			return lifecycle.AdmitResponse{}, lifecycle.Refuse(v1.PodReasonInfeasible,
				`Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`)
		}
	}
	return lifecycle.AdmitResponse{}, nil
}

// Prepare writes the state, if the pod has memory that is not in it. It implements [lifecycle.Preparer].
func (m *Manager) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	if !counts(req.Pod) {
		return lifecycle.PrepareResponse{}, nil
	}
	if err := m.file.Save(); err != nil {
		return lifecycle.PrepareResponse{}, fmt.Errorf("pod %s: %w", runtime.RefOf(req.Pod), err)
	}
	return lifecycle.PrepareResponse{}, nil
}

// EditContainer returns the memory nodes of the container, and gives back what earlier init containers have. It
// implements [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(ctx context.Context, pod *v1.Pod,
	container *v1.Container) (runtime.ContainerEdits, error) {
	if _, kind := podspec.FindContainer(&pod.Spec, container.Name); !counts(pod) ||
		kind == podspec.EphemeralContainer || runtime.ForResize(ctx) {
		return runtime.ContainerEdits{}, nil // ephemeral containers run beside init containers, and request nothing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.admittedWhileSuspended[pod.UID] {
		return runtime.ContainerEdits{}, nil
	}
	if m.machine == nil || len(m.machine.entries[string(pod.UID)]) == 0 {
		return runtime.ContainerEdits{}, fmt.Errorf("container %q of pod %s has no memory: the pod was not admitted",
			container.Name, runtime.RefOf(pod))
	}
	for _, init := range reuse.Ended(&pod.Spec, container.Name) {
		if m.machine.drop(string(pod.UID), init) {
			m.changes++
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
	if counts(req.Pod) {
		_ = m.file.Load()
		m.end(req.Pod.UID)
	}
	return nil
}

// Gone gives back the memory of the pod, if it still has some. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	_ = m.file.Load()
	m.end(req.Pod.UID)
	return nil
}

// Refused gives back the memory of a pod that was refused. It implements [lifecycle.RefusalHandler].
func (m *Manager) Refused(pod *v1.Pod) {
	_ = m.file.Loaded()
	m.end(pod.UID)
}

// end gives back the memory of a pod. Run writes the state: one that cannot be written does not keep the pod. If the
// state could not be read, the pod is back when it is read; the error is that of each container.
func (m *Manager) end(uid types.UID) {
	m.mu.Lock()
	delete(m.admittedWhileSuspended, uid)
	fits := m.resume(uid)
	if fits || m.machine != nil && m.machine.dropPod(string(uid)) {
		m.changes++
		m.file.SaveLater()
	}
	m.mu.Unlock()
	if fits {
		m.opts.Logger.Info("The state of memory is given up: the pods in it have ended", "path", m.path)
	}
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

// HasAll reports whether the container has the memory that it requests, or was an init container that has returned it;
// true if it requests none, or goes on with what it has while the manager is suspended.
func (m *Manager) HasAll(pod *v1.Pod, container *v1.Container) bool {
	if !counts(pod) {
		return true
	}
	request, err := requestOf(container.Resources.Requests)
	if err != nil { // Allocate has the error
		return false
	}
	if len(request) == 0 {
		return true
	}
	if err := m.stateError(m.file.Loaded()); err != nil {
		return errors.As(err, new(*StateError)) && m.isRunning(pod.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.machine.entries[string(pod.UID)][container.Name]
	return held || m.machine.passed(pod, container.Name)
}
