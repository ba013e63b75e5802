package cpus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/holdings"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Manager]. Reserved or ReservedCount is required.
type Options struct {
	// PolicyOptions are those of the static policy.
	PolicyOptions PolicyOptions
	// Reserved are CPUs that no container gets exclusively (kubelet's reservedSystemCPUs).
	Reserved cpuset.CPUSet
	// ReservedCount is their number, if Reserved is empty: those of the lowest cores are reserved. It is the CPU of
	// kubelet's systemReserved and kubeReserved, rounded up.
	ReservedCount int
	// KeepQuota enforces the limit of CPU of containers with exclusive CPUs, too (kubelet's feature gate
	// DisableCPUQuotaWithExclusiveCPUs: false, up to 1.36). It slows them down as soon as they use all of their CPUs.
	KeepQuota bool
	// WholePods gives CPUs to Guaranteed pods with resources as a whole, too (kubelet's feature gate
	// PodLevelResourceManagers, KEP-5526): if package topology places pods, to the pod and of these to its containers,
	// see [Partition]; otherwise to each container whose own requests of CPU and memory equal its limits. Without it
	// they get none, but keep what an earlier agent has given them.
	WholePods bool
	// Reset starts without what a checkpoint has that does not go with the machine, or without a checkpoint that cannot
	// be read. Otherwise these are a [*StateError], and the manager is suspended. Containers whose assignment is
	// dropped get other CPUs while they run, when their pod is admitted again.
	Reset bool
	// ResetHint ends the text of a [*StateError]: how a user resets the checkpoint, such as the name of a flag.
	ResetHint string
	// ListPods lists the pods of the runtime. It is called once, if the checkpoint does not go with the machine, and
	// may block. If none of StateError.Pods runs, or no pod at all if there are none, as after a reboot, the manager
	// does as with Reset. If ListPods is nil or fails, the pods run that have a directory.
	ListPods func() ([]*runtime.Pod, error)
	// Leave is for an agent with the policy none, if a checkpoint of the policy static is left, see [StaticLeft].
	// Containers of the checkpoint keep their CPUs until their pods have ended. All other containers share the rest. No
	// container is given exclusive CPUs, and none is refused. When the pods have ended, Run removes the checkpoint, so
	// that kubelet can be started with the policy none, too. No CPU has to be reserved.
	Leave bool
	// Online returns the CPUs that are online now, such as [numa.Online]. It must not block. It is called when CPUs are
	// assigned, when a container is created, and when Run changes the sets of containers. A CPU that has gone offline
	// leaves the shared pool and is not assigned any more by this manager, also if it comes online again: with cgroup
	// v1 it does not come back to the cgroups of pods. If Online is nil or returns an error, the CPUs stay as they
	// were. The error is logged.
	Online func() (cpuset.CPUSet, error)
}

// Manager assigns exclusive CPUs to containers of Guaranteed pods that request whole CPUs, and the shared pool to all
// others. It joins the life of pods, see package lifecycle, and is a provider of package topology, which calls Hints,
// Allocate and HasAll. Make one with [New]. It is safe for concurrent use.
type Manager struct {
	layout   *layout
	setter   runtime.CPUSetter
	path     string
	held     *holdings.Record
	node     lifecycle.Node
	opts     Options
	reserved cpuset.CPUSet
	running  atomic.Bool
	// wake wakes Run: the CPUs of running containers may be out of date.
	wake flow.Signal

	// mu guards the fields below. Nothing is read or written under it.
	mu   sync.Mutex
	pods map[types.UID]*pod
	// shared are the CPUs without the exclusive ones.
	// sharedText has those that were always online; it is empty if there are none.
	shared     cpuset.CPUSet
	sharedText string
	// offline are the CPUs that have gone offline.
	offline cpuset.CPUSet
	// onlineFailed means that the last call of Options.Online has failed.
	onlineFailed bool
	// measured means that the numbers of CPUs were measured as they are.
	measured bool
}

// pod is what the manager knows of a pod. A pod without CPUs of its own has running containers only.
type pod struct {
	// exclusive are the CPUs of containers by their names, and those of the pod as a whole, see [whole].
	exclusive map[string]cpuset.CPUSet
	// asWhole means that the containers get no CPUs but those that the pod has as a whole, if it has some.
	asWhole bool
	// own has the containers of a pod with CPUs as a whole, and whether they have exclusive ones; nil if that is not
	// known yet.
	own map[string]bool
	// invalid are the assignments of the checkpoint that do not go with the machine. Their containers keep them, and
	// others do not get these CPUs.
	invalid map[string]cpuset.CPUSet
	// created has the cpuset that the last instance of a container was created with, until it is seen to run; "" if
	// this is not sure.
	created map[string]string
	// instances are the containers that run, and the cpusets that they have; "" if this is not known.
	instances map[runtime.ContainerID]*instance
}

type instance struct {
	pod          types.UID
	id           runtime.ContainerID
	name, cpuset string
	// updating means that the runtime is to set other CPUs.
	updating bool
}

var (
	_ lifecycle.Joiner            = (*Manager)(nil) // which pods of the checkpoint are gone
	_ lifecycle.Admitter          = (*Manager)(nil) // resizes of exclusive CPUs are infeasible
	_ lifecycle.RefusalHandler    = (*Manager)(nil)
	_ lifecycle.Preparer          = (*Manager)(nil) // the checkpoint is written before containers start
	_ lifecycle.ContainerEditor   = (*Manager)(nil) // the cpuset of each container
	_ lifecycle.RunningHandler    = (*Manager)(nil) // containers whose cpuset changes with the shared pool
	_ lifecycle.EndedHandler      = (*Manager)(nil)
	_ lifecycle.GoneHandler       = (*Manager)(nil)
	_ lifecycle.InspectionWrapper = (*Manager)(nil) // limits that are not enforced are not taken for a resize
	_ lifecycle.Runner            = (*Manager)(nil)
)

// New returns a manager of the CPUs of the machine. The checkpoint has the path, that of kubelet is
// /var/lib/kubelet/cpu_manager_state. The setter changes the cpusets of running containers, see [runtime.Optional]. It
// reads nothing. Its error names the options that are wrong.
func New(machine numa.Machine, path string, setter runtime.CPUSetter, opts Options) (*Manager, error) {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	l := newLayout(machine)
	check(len(l.cpus) > 0, "the machine has no CPU")
	check(path != "", "the path of the checkpoint is empty")
	check(setter != nil, "a runtime that can set the CPUs of running containers (runtime.CPUSetter) is required")
	errs = append(errs, opts.PolicyOptions.check())
	reserved := opts.Reserved
	switch missing := reserved.Difference(l.all); {
	case opts.Leave:
		reserved = cpuset.New()
	case !missing.IsEmpty():
		check(false, "reserved CPUs %s are not online: the machine has %s", missing, l.all)
	case reserved.IsEmpty() && opts.ReservedCount <= 0:
		check(false, "no CPU is reserved: give systemReserved or kubeReserved some CPU, or set reservedSystemCPUs")
	case reserved.IsEmpty():
		var err error
		reserved, err = l.take(l.all, opts.ReservedCount, opts.PolicyOptions)
		check(err == nil, "%d CPUs cannot be reserved: %v", opts.ReservedCount, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cpus: %w", err)
	}
	m := &Manager{layout: l, setter: setter, path: path, node: lifecycle.NopNode{}, opts: opts, reserved: reserved,
		wake: flow.NewSignal(), pods: map[types.UID]*pod{}}
	m.held = holdings.New(path, m.restore, m.content, m.release,
		holdings.Options{Reset: opts.Reset, Leave: opts.Leave, ListPods: opts.ListPods})
	m.share()
	return m, nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "CPUs" }

// Join implements [lifecycle.Joiner], and reads the checkpoint. Pods of the checkpoint that are gone need no CPUs:
// those for which Gone of the node is true, and those without a directory below RootDir. It fails if the disk does not
// return the checkpoint.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node = node
	m.held.Join(node)
	return m.held.Load()
}

// State returns why the checkpoint did not go with the machine when it was read, a [*StateError], and whether what does
// not go with it was dropped. With Options.Leave it is dropped also without a problem, if nothing is left of its pods.
func (m *Manager) State() (problem error, dropped bool) { return m.held.State() }

// Allocatable returns the CPUs that containers can have exclusively, given or not.
func (m *Manager) Allocatable() cpuset.CPUSet { return m.layout.all.Difference(m.reserved) }

// Shared returns the CPUs of containers without exclusive ones, but those that have gone offline.
func (m *Manager) Shared() cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shared.Difference(m.offline)
}

// Exclusive returns the exclusive CPUs of the container; none if it uses those that others of its pod or of the node
// use.
func (m *Manager) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		if set, ok := p.isolated(container); ok {
			return set
		}
	}
	return cpuset.New()
}

// NoCPUQuota reports whether no limit of CPU is enforced for the pod as a whole, since a container of it has exclusive
// CPUs, see cgroup.CPUOwner. In a pod with resources as a whole, all containers must have some.
func (m *Manager) NoCPUQuota(pod *v1.Pod) bool {
	if m.opts.KeepQuota || !m.HasExclusive(pod.UID) {
		return false
	}
	if !resourcehelper.IsPodLevelResourcesSet(pod) {
		return true
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind != podspec.EphemeralContainer && m.Exclusive(pod.UID, c.Name).IsEmpty() {
			return false
		}
	}
	return true
}

// HasExclusive reports whether the pod or a container of it has CPUs that no other pod has.
func (m *Manager) HasExclusive(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	return p != nil && len(p.exclusive)+len(p.invalid) > 0
}

// size returns the number of CPUs that the container has, also of those that do not go with the machine.
func (m *Manager) size(uid types.UID, container string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return 0
	}
	set, _ := p.isolated(container)
	return set.Size() + p.invalid[container].Size()
}

// Admit refuses resizes of the CPU of Guaranteed pods, as infeasible (kubelet: without the feature gate
// InPlacePodVerticalScalingExclusiveCPUs). New pods are admitted by package topology. It implements
// [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (none lifecycle.AdmitResponse, _ error) {
	if req.Held == nil || podspec.QOSClass(req.Pod) != v1.PodQOSGuaranteed || m.opts.Leave &&
		!m.HasExclusive(req.Pod.UID) {
		return none, nil
	}
	infeasible := &runtime.TerminalError{Reason: v1.PodReasonInfeasible,
		Message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`,
		Detail:  "guaranteed_pod_cpu_manager_static_policy"}
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		held, _ := podspec.FindContainer(&req.Held.Spec, c.Name)
		if held == nil || kind == podspec.EphemeralContainer {
			continue
		}
		if c.Resources.Requests.Cpu().Cmp(*held.Resources.Requests.Cpu()) != 0 ||
			c.Resources.Limits.Cpu().Cmp(*held.Resources.Limits.Cpu()) != 0 {
			return none, infeasible
		}
	}
	if set := m.OfPod(req.Pod.UID); !set.IsEmpty() && wholeCPUs(req.Pod) != set.Size() {
		return none, infeasible
	}
	return none, nil
}

// Prepare writes the assignments of the pod. It implements [lifecycle.Preparer].
func (m *Manager) Prepare(_ context.Context, req lifecycle.PrepareRequest) (none lifecycle.PrepareResponse, _ error) {
	if !m.HasExclusive(req.Pod.UID) {
		return none, nil
	}
	if err := m.held.Save(); err != nil {
		return none, fmt.Errorf("exclusive CPUs of pod %s: %w", runtime.RefOf(req.Pod), err)
	}
	return none, nil
}

// EditContainer returns the CPUs of the container. It implements [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(ctx context.Context, p *v1.Pod,
	c *v1.Container) (edits runtime.ContainerEdits, _ error) {
	if err := m.held.Load(); err != nil {
		return edits, err
	}
	m.readOnline()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held.Unknown() {
		return edits, nil
	}
	known := m.pod(p.UID)
	set, exclusive := known.exclusive[c.Name]
	if invalid, ok := known.invalid[c.Name]; ok {
		set = invalid.Intersection(m.layout.all)
		exclusive = !m.opts.Leave || !set.IsEmpty() // otherwise it gets the shared pool
	}
	switch {
	case exclusive && set.IsEmpty():
		return edits, fmt.Errorf("container %s of pod %s has no CPUs that are online by the checkpoint %s: drain "+
			"the node and remove the file, or have it reset; %s",
			c.Name, runtime.RefOf(p), m.path, m.opts.ResetHint)
	case exclusive:
		known.note(p)
		_, isolated := known.isolated(c.Name)
		_, invalid := known.invalid[c.Name]
		edits.NoCPUQuota = !m.opts.KeepQuota && (isolated || invalid)
	case Exclusive(p, c, m.opts.WholePods) > 0 && !known.asWhole && !m.held.GoesOn(p.UID) && !m.opts.Leave:
		return edits, fmt.Errorf("container %s of pod %s has no exclusive CPUs: it was not admitted",
			c.Name, runtime.RefOf(p))
	case m.opts.Leave && m.left() == 0: // as without a manager
		return edits, nil
	case m.sharedText == "" && runtime.ForResize(ctx): // it keeps what it has
		return edits, nil
	case m.sharedText == "":
		return edits, errors.New("no CPU is left for containers without exclusive CPUs: end pods with exclusive " +
			"CPUs, bring CPUs online again, or leave out the option " + OptionStrictReservation)
	default:
		set = m.shared.Difference(m.offline)
	}
	edits.CPUSet = set.String()
	if runtime.ForResize(ctx) {
		return edits, nil
	}
	if before, pending := known.created[c.Name]; pending && before != edits.CPUSet {
		known.created[c.Name] = ""
	} else {
		known.created[c.Name] = edits.CPUSet
	}
	return edits, nil
}

// Running notes the containers whose CPUs follow the shared pool; [Manager.Run] changes them. It implements
// [lifecycle.RunningHandler].
func (m *Manager) Running(_ context.Context, p *v1.Pod, observed *runtime.PodStatus) error {
	m.mu.Lock()
	known := m.pod(p.UID)
	instances := map[runtime.ContainerID]*instance{}
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if c.State != runtime.ContainerRunning {
			continue
		}
		in := known.instances[c.ID]
		if in == nil {
			in = &instance{pod: p.UID, id: c.ID, name: c.Name, cpuset: known.created[c.Name]}
			delete(known.created, c.Name)
		}
		instances[c.ID] = in
	}
	known.instances = instances
	m.mu.Unlock()
	m.wake.Notify()
	return nil
}

// Refused gives back the CPUs of a pod that was refused. It implements [lifecycle.RefusalHandler].
func (m *Manager) Refused(pod *v1.Pod) { m.held.Refused(pod.UID) }

// Ended gives back the CPUs of the pod. It implements [lifecycle.EndedHandler].
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// Gone gives back the CPUs of the pod, if it still has some. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// release gives back all that the pod has.
func (m *Manager) release(uid types.UID) (changed bool, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	delete(m.pods, uid)
	if p == nil || len(p.exclusive)+len(p.invalid) == 0 {
		return false, nil
	}
	m.share()
	return true, m.wake.Notify
}

// left returns the number of pods that have exclusive CPUs. mu is held.
func (m *Manager) left() (n int) {
	for _, p := range m.pods {
		if len(p.exclusive)+len(p.invalid) > 0 {
			n++
		}
	}
	return n
}

// pod returns what is known of the pod. mu is held.
func (m *Manager) pod(uid types.UID) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{exclusive: map[string]cpuset.CPUSet{}, invalid: map[string]cpuset.CPUSet{},
			created: map[string]string{}, instances: map[runtime.ContainerID]*instance{}}
		m.pods[uid] = p
	}
	return p
}

// share computes the shared pool. mu is held, except in New.
func (m *Manager) share() {
	m.measured = false
	m.shared = m.layout.all
	if m.opts.PolicyOptions.StrictReservation {
		m.shared = m.shared.Difference(m.reserved)
	}
	for _, p := range m.pods {
		for _, of := range []map[string]cpuset.CPUSet{p.exclusive, p.invalid} {
			for _, set := range of {
				m.shared = m.shared.Difference(set)
			}
		}
	}
	m.sharedText = m.shared.Difference(m.offline).String()
}
