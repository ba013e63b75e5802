package cgroup

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// startDelay is how long [Manager.Run] waits for the first pod: by then the driver of the runtime is known.
	startDelay = 5 * time.Second
	// settle is the time without changes after which the cgroups of classes are changed; settleMax bounds the wait. All
	// pods of an agent that starts are prepared in between.
	settle, settleMax = time.Second, 10 * time.Second
)

// The reasons of events about the node are kubelet's.
const (
	reasonEnforced    = "NodeAllocatableEnforced"
	reasonNotEnforced = "FailedNodeAllocatableEnforcement"
)

// Run implements [lifecycle.Runner]: it makes the cgroups above those of pods, sets their limits and those of what is
// reserved, moves processes, and changes the cgroups of classes when the requests of pods have changed. What fails is
// repeated once a minute. While nothing changes, it does nothing.
func (m *Manager) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.wake:
	case <-time.After(startDelay):
	}
	if !m.usable() {
		<-ctx.Done()
		return nil
	}
	if missing := m.tree.missing(); len(missing) > 0 {
		m.log.Info("Not all limits of pods hold, since controllers of cgroups are missing", "controllers", missing)
	}
	todo := m.duties()
	var again <-chan time.Time
	for {
		if again == nil && len(todo) > 0 {
			if todo = m.do(todo); len(todo) > 0 {
				again = time.After(retryAfter)
			}
		}
		if !m.settled(ctx) {
			return nil
		}
		if err := m.updateQoS(); err != nil {
			if m.once.first("classes", err) {
				m.log.Error(err, "The cgroups of classes cannot be changed")
			}
			if again == nil {
				again = time.After(retryAfter)
			}
		} else {
			m.once.forget("classes")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-again:
			again = nil
		}
	}
}

// settled waits until the requests of pods have not changed for a while. It returns false if ctx ends.
func (m *Manager) settled(ctx context.Context) bool {
	end := time.Now().Add(settleMax)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(settle):
			return true
		case <-m.wake:
			if !time.Now().Before(end) {
				return true
			}
		}
	}
}

// duty is something that is done once, or with each period.
type duty struct {
	name   string
	run    func() error
	always bool
	// event is the message of an event about its success; "" for none.
	event string
}

// duties returns what is to be done when the agent starts.
func (m *Manager) duties() []duty {
	list := []duty{{name: "the limits of all pods", run: m.limitPods,
		event: "Updated Node Allocatable limit across pods"}}
	add := func(e Enforcement, what, cgroup string, amounts v1.ResourceList, compressible bool) {
		if m.enforced(e) {
			list = append(list, duty{name: string(e), event: "Updated limits on " + what + " cgroup " + cgroup,
				run: func() error {
					return m.limitReserved(cgroup, amounts, compressible)
				}})
		}
	}
	add(EnforceSystemReserved, "system reserved", m.opts.SystemReservedCgroup, m.opts.SystemReserved, false)
	add(EnforceKubeReserved, "kube reserved", m.opts.KubeReservedCgroup, m.opts.KubeReserved, false)
	add(EnforceSystemReservedCompressible, "system reserved", m.opts.SystemReservedCgroup, m.opts.SystemReserved, true)
	add(EnforceKubeReservedCompressible, "kube reserved", m.opts.KubeReservedCgroup, m.opts.KubeReserved, true)
	if c := m.opts.KubeletCgroup; c != "" {
		list = append(list, duty{name: "moving this process to " + c, always: true,
			run: func() error { return m.tree.moveSelf(c) }})
	}
	if c := m.opts.SystemCgroup; c != "" {
		list = append(list, duty{name: "moving processes of the root cgroup to " + c, always: true,
			run: func() error { return m.tree.moveRoot(c) }})
	}
	return list
}

// do does what is due, and returns what is to be done again.
func (m *Manager) do(list []duty) (again []duty) {
	for _, d := range list {
		err := d.run()
		if err != nil && m.once.first(d.name, err) {
			m.log.Error(err, "Not all cgroups of the node could be set up; it is tried again each minute",
				"what", d.name)
			if d.event != "" {
				m.node.Event(runtime.Event{Type: v1.EventTypeWarning, Reason: reasonNotEnforced,
					Message: "Failed to enforce " + d.name + ": " + err.Error()})
			}
		}
		if err == nil {
			m.once.forget(d.name)
			if d.event != "" {
				m.node.Event(runtime.Event{Type: v1.EventTypeNormal, Reason: reasonEnforced, Message: d.event})
			}
		}
		if err != nil || d.always {
			again = append(again, d)
		}
	}
	return again
}

// nodeResources returns the resources of the cgroup of all pods.
func (m *Manager) nodeResources(driver Driver) Resources {
	amounts := m.opts.Capacity
	if m.enforced(EnforcePods) {
		amounts = m.allocatable()
	}
	r := NodeResources(amounts, false)
	if len(r.HugePages) == 0 {
		r.HugePages = nil // the capacity does not have them
	}
	if driver == Systemd {
		r.CPUs = m.tree.cpus() // else systemd takes the controller away (kubelet: getCgroupConfig)
	}
	return r
}

// makeNode makes the cgroups above those of pods, unless it has.
func (m *Manager) makeNode() error {
	driver := m.pods.current()
	all := m.pods.above(driver, "")
	m.above.Lock()
	defer m.above.Unlock()
	if m.nodeReady == all {
		return nil
	}
	if !m.tree.exists(all) {
		if err := m.tree.make(driver, all, m.nodeResources(driver)); err != nil {
			return fmt.Errorf("making the cgroup of all pods %s: %w", all, err)
		}
	}
	qos := QOS(Requests{}, QOSPolicy{}, m.tree.pageSizes())
	qos.Burstable.CPUShares, qos.Burstable.MemoryLow = 0, nil // those of an earlier agent hold until the pods are known
	for class, r := range map[string]Resources{classes()[1]: qos.Burstable, classes()[2]: qos.BestEffort} {
		cgroup := m.pods.above(driver, class)
		apply := m.tree.make
		if m.tree.exists(cgroup) {
			apply = m.tree.set
		}
		if err := apply(driver, cgroup, r); err != nil {
			return fmt.Errorf("making the cgroup of a class %s: %w", cgroup, err)
		}
	}
	m.nodeReady = all
	m.mu.Lock()
	m.qos = QOSResources{}
	m.mu.Unlock()
	m.signal()
	return nil
}

// lost means that a cgroup was removed by somebody else: those above it are made again.
func (m *Manager) lost() {
	m.above.Lock()
	m.nodeReady = ""
	m.above.Unlock()
}

// limitPods sets the limits of all pods together.
func (m *Manager) limitPods() error {
	if err := m.makeNode(); err != nil {
		return err
	}
	driver := m.pods.current()
	return m.tree.set(driver, m.pods.above(driver, ""), m.nodeResources(driver))
}

// limitReserved sets the limits of a cgroup of the system or of the agents.
func (m *Manager) limitReserved(cgroup string, amounts v1.ResourceList, compressible bool) error {
	if !m.tree.exists(cgroup) {
		return fmt.Errorf("the cgroup %s does not exist", cgroup)
	}
	r := NodeResources(amounts, compressible)
	if m.opts.MemoryQoS && m.tree.unified() && r.MemoryMax > 0 {
		r.MemoryMin = &r.MemoryMax
	}
	return m.tree.set(m.pods.current(), cgroup, r)
}

// updateQoS changes the cgroups of classes to what the pods request now.
func (m *Manager) updateQoS() error {
	policy := QOSPolicy{ReservedMemory: m.opts.ReservedMemory, AllocatableMemory: amount(m.allocatable(),
		v1.ResourceMemory), MemoryReservation: m.policy().MemoryReservation}
	if err := m.makeNode(); err != nil {
		return err
	}
	driver := m.pods.current()
	m.mu.Lock()
	want, before := QOS(m.sum, policy, m.tree.pageSizes()), m.qos
	m.mu.Unlock()
	m.above.Lock()
	defer m.above.Unlock()
	for i, list := range [][2]*Resources{{&want.Guaranteed, &before.Guaranteed}, {&want.Burstable, &before.Burstable},
		{&want.BestEffort, &before.BestEffort}} {
		if list[0].Equal(*list[1]) {
			continue
		}
		cgroup := m.pods.above(driver, classes()[i])
		err := m.tree.set(driver, cgroup, *list[0])
		if err != nil && list[0].MemoryMax > 0 {
			err = m.limitToUsage(driver, cgroup, *list[0], err)
		}
		if err != nil {
			return fmt.Errorf("changing the cgroup %s: %w", cgroup, err)
		}
	}
	m.mu.Lock()
	m.qos = want
	m.mu.Unlock()
	return nil
}

// limitToUsage sets the limit of memory to what a class uses, if it uses more than it is to have, so that it does not
// grow (kubelet: retrySetMemoryReserve).
func (m *Manager) limitToUsage(driver Driver, cgroup string, r Resources, cause error) error {
	usage, err := m.tree.memoryUsage(cgroup)
	if err != nil || usage <= r.MemoryMax {
		return cause
	}
	r.MemoryMax = usage
	return m.tree.set(driver, cgroup, r)
}
