package cgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Enforcement is what is enforced of the amounts of a node, in the words of kubelet's enforceNodeAllocatable.
type Enforcement string

// The kinds of [Enforcement].
const (
	EnforcePods                       Enforcement = "pods"
	EnforceSystemReserved             Enforcement = "system-reserved"
	EnforceKubeReserved               Enforcement = "kube-reserved"
	EnforceSystemReservedCompressible Enforcement = "system-reserved-compressible"
	EnforceKubeReservedCompressible   Enforcement = "kube-reserved-compressible"
)

// ManagerOptions are the settings of a [Manager]. The zero value gives pods their cgroups, and no limit to all pods
// together.
type ManagerOptions struct {
	// Policy is that of the cgroups of pods.
	Policy Policy
	// MemoryQoS is kubelet's feature gate: Policy.MemoryReservation and Policy.MemoryThrottlingFactor have no effect
	// without it, nor without cgroup v2. With it, the cgroups of the system and of the agents have their limit of
	// memory protected.
	MemoryQoS bool
	// ReservedMemory is that of [QOSPolicy].
	ReservedMemory *int64

	// Capacity are the amounts of the machine, also of huge pages and [PIDs]. Amounts that are not in it are not
	// limited.
	Capacity v1.ResourceList
	// SystemReserved and KubeReserved are the amounts that pods do not get (kubelet's settings of these names).
	SystemReserved, KubeReserved v1.ResourceList
	// Enforce has which limits hold. Without [EnforcePods] the limit of all pods is the capacity.
	Enforce []Enforcement
	// SystemReservedCgroup and KubeReservedCgroup are the cgroups of the system and of the agents of the node, in the
	// form of the driver. They are not made.
	SystemReservedCgroup, KubeReservedCgroup string
	// KubeletCgroup is a cgroup that this process moves to, SystemCgroup one that all processes move to that are in the
	// root cgroup, both checked once a minute (kubelet's kubeletCgroups and systemCgroups). "" moves none, and checks
	// nothing.
	KubeletCgroup, SystemCgroup string

	tree tree // of tests
}

// CPUOwner is a component that gives containers CPUs of their own, such as a cpus.Manager. The [Manager] finds it among
// the components of the agent.
type CPUOwner interface {
	// NoCPUQuota reports whether no limit of CPU is enforced for the pod, as one of its containers has exclusive CPUs.
	// It must not block.
	NoCPUQuota(pod *v1.Pod) bool
}

// Manager gives each pod its cgroup, with the pod's limits, before its sandbox is made, and gives the cgroups above it
// what their pods need. It joins the life of pods as a component of [lifecycle]; all its methods are safe for
// concurrent use.
//
// No pod fails because its cgroup cannot be made: the OCI runtime makes the missing ones, without limits. The exception
// are pods with limits of their own (KEP-2837), since these are held by nothing else.
type Manager struct {
	pods *Pods
	opts ManagerOptions
	tree tree
	node lifecycle.Node
	log  logr.Logger
	once causes
	// owners are the components that give containers CPUs.
	owners []CPUOwner
	// wake signals that the requests of all pods, or the cgroups above them, have changed.
	wake chan struct{}

	mu sync.Mutex
	// written has the pods that hold resources.
	written map[types.UID]written
	// sum is that of the requests in written.
	sum Requests
	// qos is what was written to the cgroups of classes; the zero value after they were made.
	qos QOSResources

	// above serializes the changes of the cgroups above those of pods.
	above     sync.Mutex
	nodeReady string // the cgroup of all pods that was made; "" before
}

// written is what was written to the cgroup of a pod.
type written struct {
	cgroup    string
	resources Resources
	requests  Requests
}

// NewManager returns a Manager of the pods' cgroups. It reads and changes nothing. The error names the options that are
// wrong.
func NewManager(pods *Pods, opts ManagerOptions) (*Manager, error) {
	var errs []error
	if pods == nil {
		errs = append(errs, errors.New("cgroup: the cgroups of pods are required"))
	}
	if f := opts.Policy.MemoryThrottlingFactor; f < 0 || f > 1 {
		errs = append(errs, fmt.Errorf("cgroup: MemoryThrottlingFactor %v: must be from 0 to 1", f))
	}
	if p := opts.ReservedMemory; p != nil && (*p < 0 || *p > 100) {
		errs = append(errs, fmt.Errorf("cgroup: ReservedMemory %d: must be a percentage", *p))
	}
	for _, e := range opts.Enforce {
		switch e {
		case EnforcePods:
		case EnforceSystemReserved, EnforceSystemReservedCompressible:
			if opts.SystemReservedCgroup == "" {
				errs = append(errs, fmt.Errorf("cgroup: %s needs a SystemReservedCgroup", e))
			}
		case EnforceKubeReserved, EnforceKubeReservedCompressible:
			if opts.KubeReservedCgroup == "" {
				errs = append(errs, fmt.Errorf("cgroup: %s needs a KubeReservedCgroup", e))
			}
		default:
			errs = append(errs, fmt.Errorf("cgroup: %q cannot be enforced", e))
		}
	}
	if strings.Trim(opts.SystemCgroup, "/") == "" && opts.SystemCgroup != "" {
		errs = append(errs, errors.New("cgroup: SystemCgroup cannot be the root"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t := opts.tree
	if t == nil {
		t = kernelTree(pods.mount)
	}
	opts.tree = t
	m := &Manager{pods: pods, opts: opts, wake: make(chan struct{}, 1), written: map[types.UID]written{}}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. The node gets kubelet's events about it.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log, m.owners = node, node.Logger(), nil
	m.tree = measuredTree{m.opts.tree, node}
	for _, c := range node.Components() {
		if owner, ok := c.(CPUOwner); ok {
			m.owners = append(m.owners, owner)
		}
	}
	return nil
}

// Name implements [lifecycle.Component].
func (*Manager) Name() string { return "cgroups" }

// Order implements [lifecycle.Ordered].
func (*Manager) Order() lifecycle.Order { return beforeAllocation() }

// RemoveGone removes the cgroups of pods that are gone, see [Pods.RemoveGone].
func (m *Manager) RemoveGone(gone func(uid types.UID) bool) (map[types.UID]error, error) {
	m.mu.Lock()
	known := make([]types.UID, 0, len(m.written))
	for uid := range m.written {
		known = append(known, uid)
	}
	m.mu.Unlock()
	for _, uid := range known {
		if gone(uid) {
			m.forget(uid)
		}
	}
	began := time.Now()
	removed, err := m.pods.RemoveGone(gone)
	if len(removed) > 0 {
		measure(m.node, runtime.CgroupDestroy, began)
	}
	return removed, err
}

// Ended implements [lifecycle.EndedHandler]: the pod holds no resources any more.
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.forget(req.Pod.UID)
	return nil
}

// remember keeps what the cgroup of a pod has.
func (m *Manager) remember(uid types.UID, w written) {
	m.mu.Lock()
	before := m.written[uid].requests
	m.written[uid] = w
	m.sum = m.sum.minus(before).plus(w.requests)
	m.mu.Unlock()
	if before != w.requests {
		m.signal()
	}
}

func (m *Manager) forget(uid types.UID) {
	m.mu.Lock()
	before := m.written[uid].requests
	delete(m.written, uid)
	m.sum = m.sum.minus(before)
	m.mu.Unlock()
	if before != (Requests{}) {
		m.signal()
	}
}

func (m *Manager) signal() {
	select {
	case m.wake <- struct{}{}:
	default: // it is pending
	}
}

// usable reports whether this process may make cgroups. If not, that is logged once.
func (m *Manager) usable() bool {
	err := m.tree.usable(m.pods.current())
	if err != nil && m.once.first("usable", err) {
		m.log.Info("Pods have no cgroups with limits of their own", "reason", err.Error())
	}
	return err == nil
}

// enforced reports whether the option requests it.
func (m *Manager) enforced(e Enforcement) bool { return slices.Contains(m.opts.Enforce, e) }

// allocatable returns the amounts of all pods (kubelet: GetNodeAllocatableAbsolute). Unlike what pods can request, it
// has the thresholds of eviction in it, which are below the limit of the pods together.
func (m *Manager) allocatable() v1.ResourceList {
	return podspec.Remaining(m.opts.Capacity, m.opts.SystemReserved, m.opts.KubeReserved)
}

// policy returns the policy of the cgroups of pods on this kernel.
func (m *Manager) policy() Policy {
	p := m.opts.Policy
	if !m.opts.MemoryQoS || !m.tree.unified() {
		p.MemoryReservation, p.MemoryThrottlingFactor = false, 0
	}
	return p
}

// retryAfter is the time after which a cgroup that could not be changed is tried again.
const retryAfter = time.Minute
