package users

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Manager]. The zero value is kubelet's default.
type Options struct {
	// IDsPerPod is the number of IDs of each pod, a multiple of [Unit] (kubelet's userNamespaces.idsPerPod). Default
	// [Unit].
	IDsPerPod int64
	// Pool returns the range from which pods have theirs, such as [KubeletIDs]. The zero Range is all IDs from
	// IDsPerPod on. It is called before the first range is assigned; an error is one of the pod, and the call is
	// repeated. Default: all IDs.
	Pool func(ctx context.Context) (Range, error)
	// MaxPods is the number of pods for which the pool must have ranges, as in kubelet. Default: 0.
	MaxPods int
	// Features returns what the runtime reports, see [runtime.FeatureReporter]. It must not block. If nil, every
	// runtime is taken to support user namespaces.
	Features func() runtime.Features
	// RuntimeHandler returns the runtime handler of a runtime class. It must not block. Default: the name of the class.
	RuntimeHandler func(class string) (handler string, err error)
	// InUse returns the ranges of host IDs that processes of the machine have in user namespaces, also of others. It is
	// called once, before the first range is assigned. Default: those in /proc, on Linux.
	InUse func() ([]Range, error)
}

// Manager assigns ranges of host IDs to pods with hostUsers: false. It joins the life of pods, see package lifecycle.
// Make one with [New]. It is safe for concurrent use.
type Manager struct {
	podsDir string
	opts    Options
	log     logr.Logger

	write func(dir string, r Range) error // that of tests does not sync
	// restoring is held while the records are read.
	restoring sync.Mutex

	// mu guards the fields below. Nothing is read or written under it.
	mu sync.Mutex
	// ranges is nil until the records are read.
	ranges *Ranges
	// used are the ranges that processes had when the records were read.
	used []Range
	// assigned are the pods whose range was decided by this manager, and is not just read from a record. The value is
	// true if the record has it.
	assigned map[types.UID]bool
}

var (
	_ lifecycle.Joiner          = (*Manager)(nil)
	_ lifecycle.Admitter        = (*Manager)(nil)
	_ lifecycle.Preparer        = (*Manager)(nil)
	_ lifecycle.SandboxEditor   = (*Manager)(nil)
	_ lifecycle.ContainerEditor = (*Manager)(nil)
	_ lifecycle.EndedHandler    = (*Manager)(nil)
	_ lifecycle.GoneHandler     = (*Manager)(nil)
)

// New returns a manager of the users of pods, whose directories are in podsDir; that of kubelet is
// /var/lib/kubelet/pods. It reads nothing. Its error names the options that are wrong.
func New(podsDir string, opts Options) (*Manager, error) {
	var errs []error
	if podsDir == "" {
		errs = append(errs, errors.New("the directory of the pods is empty"))
	}
	if opts.IDsPerPod == 0 {
		opts.IDsPerPod = Unit
	}
	if n := opts.IDsPerPod; n < Unit || n > idSpace/2 || n%Unit != 0 {
		errs = append(errs, fmt.Errorf("%d IDs for each pod are not a multiple of %d up to %d", n,
			Unit, uint32(idSpace/2)))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("users: %w", errors.Join(errs...))
	}
	if opts.Pool == nil {
		opts.Pool = func(context.Context) (Range, error) { return Range{}, nil }
	}
	if opts.InUse == nil {
		opts.InUse = inUse
	}
	m := &Manager{podsDir: podsDir, opts: opts, write: writeRecord, assigned: map[types.UID]bool{}}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner].
func (m *Manager) Join(node lifecycle.Node) error {
	m.log = node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "user namespaces" }

// Order implements [lifecycle.Ordered]: a pod that is refused is given no CPUs, memory or devices.
func (*Manager) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"topology"}} }

// Prepare assigns a range to the pod, unless it has one. It implements [lifecycle.Preparer].
func (m *Manager) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	none := lifecycle.PrepareResponse{}
	if !podspec.HasUserNamespace(req.Pod) {
		return none, nil
	}
	m.mu.Lock()
	ready := m.assigned[req.Pod.UID]
	m.mu.Unlock()
	if ready {
		return none, nil
	}
	err := m.restore(ctx)
	if err == nil {
		err = m.assign(req)
	}
	if err != nil {
		return none, fmt.Errorf("user namespace of pod %s: %w", runtime.RefOf(req.Pod), err)
	}
	return none, nil
}

// assign gives the pod the range of its sandbox, that of its record, or a new one, and writes its record.
func (m *Manager) assign(req lifecycle.PrepareRequest) error {
	recorded, recordErr := readRecord(req.Dir)
	if recordErr != nil && !errors.Is(recordErr, os.ErrNotExist) && !errors.Is(recordErr, errRecord) {
		return recordErr
	}
	box := ready(req.Observed)
	if box.own != (Range{}) && recorded != box.own {
		m.log.Info("The record of the user namespace of a pod is missing or wrong; it is written again, as "+
			"the sandbox has it",
			"pod", runtime.RefOf(req.Pod), "range", box.own.String())
	}
	if errors.Is(recordErr, errRecord) && box.exists && box.own == (Range{}) {
		return fmt.Errorf(
			"%w; the pod runs, and the runtime does not report its range: repair the file, or remove the pod",
			recordErr)
	}
	if recordErr != nil && !box.exists {
		if known, err := m.supports(req.Pod); known && err != nil {
			return err
		}
	}
	// A sandbox that does not tell its range may have another one than the record: once it is gone, the record is
	// judged again.
	sure := !box.exists || box.own != (Range{})
	m.mu.Lock()
	own, err := m.choose(req.Pod.UID, recorded, box)
	if err == nil && sure {
		m.assigned[req.Pod.UID] = false
	}
	m.mu.Unlock()
	if err != nil {
		return explain(err)
	}
	if recorded != own {
		if err := m.write(req.Dir, own); err != nil {
			return fmt.Errorf("writing its record: %w", err)
		}
	}
	if sure {
		m.mu.Lock()
		m.assigned[req.Pod.UID] = true
		m.mu.Unlock()
	}
	return nil
}

// choose returns the range of the pod, which is then its own. recorded is the one in its record, or the zero Range. mu
// is held.
func (m *Manager) choose(pod types.UID, recorded Range, box sandbox) (Range, error) {
	owner, want := string(pod), recorded
	had, has := m.ranges.Of(owner)
	_, ours := m.assigned[pod]
	switch {
	case has && ours: // its record could not be written the last time
		return had, nil
	case box.own != (Range{}):
		want = box.own
	case !box.exists && slices.ContainsFunc(m.used, want.overlaps):
		want = Range{} // others have it, or those of the pod have ended since
	}
	if has && had != want {
		m.drop(pod)
	}
	if want == (Range{}) {
		return m.ranges.Allocate(owner)
	}
	err := m.ranges.Assign(owner, want)
	for conflict := (*ConflictError)(nil); errors.As(err, &conflict) && box.own != (Range{}); {
		other := types.UID(conflict.Owner)
		if _, sure := m.assigned[other]; sure {
			break
		}
		m.drop(other) // it has a record only, while this pod has a sandbox
		err = m.ranges.Assign(owner, want)
	}
	switch {
	case err == nil:
		return want, nil
	case !box.exists: // nothing holds it to this range
		return m.ranges.Allocate(owner)
	default:
		return Range{}, err
	}
}

// explain adds to the error of a range what to do.
func explain(err error) error {
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return fmt.Errorf("%w; containers that run continue to run, but none is started: remove one of the two pods",
			err)
	case errors.Is(err, ErrExhausted):
		return fmt.Errorf("%w; remove pods with hostUsers: false, or give the pool more IDs", err)
	default:
		return err
	}
}

// sandbox is the ready sandbox of a pod.
type sandbox struct {
	exists bool
	// own is its range, the zero Range if the runtime does not report it.
	own Range
}

// ready returns the newest ready sandbox.
func ready(observed *runtime.PodStatus) (s sandbox) {
	if observed == nil {
		return s
	}
	i := slices.IndexFunc(observed.Sandboxes,
		func(s runtime.SandboxStatus) bool { return s.State == runtime.SandboxReady })
	if i < 0 {
		return s
	}
	s.exists = true
	if ns := observed.Sandboxes[i].UserNamespace; ns != nil {
		if own, err := rangeOf(ns); err == nil {
			s.own = own
		}
	}
	return s
}

// EditSandbox returns the user namespace of the pod. It implements [lifecycle.SandboxEditor].
func (m *Manager) EditSandbox(_ context.Context, pod *v1.Pod) (runtime.SandboxEdits, error) {
	users, err := m.usersOf(pod)
	return runtime.SandboxEdits{UserNamespace: users}, err
}

// EditContainer returns the user namespace of the pod. It implements [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(_ context.Context, pod *v1.Pod, _ *v1.Container) (runtime.ContainerEdits, error) {
	users, err := m.usersOf(pod)
	return runtime.ContainerEdits{UserNamespace: users}, err
}

func (m *Manager) usersOf(pod *v1.Pod) (*runtime.UserNamespace, error) {
	if !podspec.HasUserNamespace(pod) {
		return nil, nil
	}
	m.mu.Lock()
	own, ok := m.ranges.Of(string(pod.UID))
	m.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("pod %s has no range of user IDs: it was not prepared", runtime.RefOf(pod))
	}
	return namespace(own), nil
}

// Ended returns the range of the pod. It implements [lifecycle.EndedHandler].
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	if !podspec.HasUserNamespace(req.Pod) {
		return nil
	}
	return m.release(req.Pod.UID, req.Dir)
}

// Gone returns the range of the pod, if it still has one. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	m.mu.Lock()
	_, has := m.ranges.Of(string(req.Pod.UID))
	m.mu.Unlock()
	if !has { // its record, if there is one, is removed with its directory
		return nil
	}
	return m.release(req.Pod.UID, req.Dir)
}

// release removes the record of a pod, and then returns its range, so that no two records have it.
func (m *Manager) release(pod types.UID, dir string) error {
	if err := removeRecord(dir); err != nil {
		return fmt.Errorf("returning the user IDs of pod %s: %w", pod, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(pod)
	return nil
}

// drop returns the range of a pod. mu is held.
func (m *Manager) drop(pod types.UID) {
	m.ranges.Release(string(pod))
	if _, sure := m.assigned[pod]; !sure { // its record may have had the range of others
		for _, u := range m.used {
			m.ranges.Reserve(u)
		}
	}
	delete(m.assigned, pod)
}

// RangeOf returns the range of the pod, if one was assigned or restored.
func (m *Manager) RangeOf(pod types.UID) (Range, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranges.Of(string(pod))
}
