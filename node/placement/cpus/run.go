package cpus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// updates is the number of running containers whose CPUs are changed at a time, and updateTimeout the time that one
	// may take.
	updates       = 8
	updateTimeout = 10 * time.Second
)

// retries are the delays after a failure of one container.
var retries = flow.Backoff{Min: time.Second, Max: 10 * time.Second}

// Restore reads the checkpoint, unless it is read already. Join does, too; without it, the first container needs it.
//
// With a [*StateError] the manager is suspended until the pods of StateError.Pods have ended: it can be used, and does
// what the package documentation says. With another error, of the disk, no container can be created until Restore
// succeeds.
func (m *Manager) Restore() error { return m.held.Restore() }

func (m *Manager) restore() error {
	c, err := readCheckpoint(&m.held.Reader, m.path)
	problem := (*StateError)(nil)
	switch {
	case m.opts.Leave && (errors.Is(err, os.ErrNotExist) || err == nil && c.Policy == policyNone):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist) && !errors.As(err, &problem):
		return fmt.Errorf("reading the assignments of CPUs: %w", err)
	}
	all := c.Exclusive
	for uid, set := range c.Pods {
		all.add(uid, whole, set)
	}
	kept, invalid, problems := m.usable(all)
	unreadable := problem != nil
	if !unreadable {
		problem = m.problem(c.Policy, all, invalid, problems)
	}
	dropped := false
	switch {
	case problem != nil:
		problem.Hint = m.opts.ResetHint
		dropped = m.held.Unfit(problem, problem.Pods, unreadable || !m.opts.Leave)
	case m.opts.Leave:
		dropped = m.held.Unfit(nil, nil, false)
	}
	if dropped && m.opts.Leave {
		return nil
	}
	if dropped {
		invalid = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range all {
		if uid := types.UID(uid); m.held.Earlier(uid) {
			maps.Copy(m.pod(uid).exclusive, kept[string(uid)])
			maps.Copy(m.pod(uid).invalid, invalid[string(uid)])
		}
	}
	m.share()
	// What the checkpoint has must be what is assigned, and kubelet must not find CPUs in it that are not online.
	if len(problems) > 0 || err != nil || !c.Shared.Equals(m.shared) {
		m.held.Changed()
	}
	m.wake.Notify()
	return nil
}

// problem returns what does not go with the machine or, with [Options.Leave], with the policy; nil if all does.
func (m *Manager) problem(policy string, all, invalid Assignments, problems []string) *StateError {
	uids := maps.Keys(invalid)
	if m.opts.Leave {
		uids = maps.Keys(all)
	}
	e := &StateError{Path: m.path, Problems: problems}
	for _, uid := range slices.Sorted(uids) {
		if uid := types.UID(uid); !m.opts.Leave || !m.held.Gone(uid) {
			e.Pods = append(e.Pods, uid)
		}
	}
	if len(e.Pods) == 0 {
		return nil
	}
	if m.opts.Leave {
		e.Problems = []string{fmt.Sprintf("containers of %d pods have exclusive CPUs by the policy %s, and the policy "+
			"is none", len(e.Pods), policy)}
	}
	return e
}

// usable returns the assignments that go with the machine, and what is wrong with the others.
func (m *Manager) usable(all Assignments) (kept, invalid Assignments, problems []string) {
	kept, invalid = Assignments{}, Assignments{}
	owner := map[int]string{}
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		ofPod, pooled := all[uid][whole]
		bad := len(problems)
		for _, name := range slices.Sorted(maps.Keys(all[uid])) {
			set := all[uid][name]
			about := fmt.Sprintf("container %s of pod %s has CPUs %s", name, uid, set)
			if name == whole {
				about = fmt.Sprintf("pod %s has CPUs %s", uid, set)
			}
			problem := ""
			switch missing, reserved := set.Difference(m.layout.all), set.Intersection(m.reserved); {
			case pooled && !set.IsSubsetOf(ofPod):
				problem = "and the pod " + ofPod.String()
			case set.IsEmpty():
				problem = "none"
			case !missing.IsEmpty():
				problem = fmt.Sprintf("of which %s are not online", missing)
			case !reserved.IsEmpty():
				problem = fmt.Sprintf("of which %s are reserved", reserved)
			}
			for _, id := range set.List() {
				if other := owner[id]; problem == "" && other != "" && other != uid {
					problem = fmt.Sprintf("of which pod %s has %d", other, id)
				}
			}
			if problem != "" {
				problems = append(problems, about+", "+problem)
				invalid.add(uid, name, set)
				continue
			}
			for _, id := range set.UnsortedList() {
				owner[id] = uid
			}
			kept.add(uid, name, set)
		}
		if pooled && len(problems) > bad { // its containers have parts of what it has
			delete(kept, uid)
			invalid[uid] = maps.Clone(all[uid])
		}
	}
	return kept, invalid, problems
}

// content returns the content of the checkpoint.
func (m *Manager) content() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opts.Leave && m.left() > 0 {
		return nil, nil
	}
	c := Checkpoint{Policy: policyStatic, Shared: m.shared, Exclusive: Assignments{},
		Pods: map[string]cpuset.CPUSet{}}
	for uid, p := range m.pods {
		for name, set := range p.exclusive {
			if name != whole {
				c.Exclusive.add(string(uid), name, set)
			}
		}
		if set, ok := p.exclusive[whole]; ok {
			c.Pods[string(uid)] = set
		}
	}
	return FormatCheckpoint(c), nil
}

// Run gives running containers the CPUs that they are to have, when these change, and writes the checkpoint. It
// implements [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return fmt.Errorf("cpus: %w", runtime.ErrAlreadyRunning)
	}
	var joined sync.WaitGroup
	defer joined.Wait()
	joined.Go(func() { m.held.Run(ctx, m.node.Logger()) })
	slots := make(chan struct{}, updates)
	for {
		if m.held.Load() == nil { // otherwise it is the error of each container
			m.readOnline()
			m.measureCounts()
			for _, in := range m.due() {
				joined.Go(func() { m.update(ctx, slots, in) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
}

// measureCounts measures the numbers of CPUs, if they may have changed.
func (m *Manager) measureCounts() {
	m.mu.Lock()
	due := !m.measured
	shared := m.shared.Difference(m.offline).Difference(m.reserved).Size()
	exclusive := map[int]int{}
	for _, c := range m.layout.cpus {
		exclusive[c.Node] += 0 // a node without exclusive CPUs any more
	}
	for _, p := range m.pods {
		all := cpuset.New() // what containers share, or use one after another, counts once
		for _, set := range p.exclusive {
			all = all.Union(set)
		}
		for _, id := range all.UnsortedList() {
			exclusive[m.layout.cpus[m.layout.index[id]].Node]++
		}
	}
	m.measured = true
	m.mu.Unlock()
	if due {
		m.node.Measure(Counts{Shared: shared, Exclusive: exclusive})
	}
}

// due returns the containers whose CPUs are not those that they are to have, and has them be updated.
func (m *Manager) due() (out []*instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		for _, in := range p.instances {
			if !in.updating && m.wanted(p, in) != in.cpuset {
				in.updating = true
				out = append(out, in)
			}
		}
	}
	return out
}

// wanted returns the CPUs that the container is to have. Without a shared pool, or if the checkpoint has others that do
// not go with the machine, it keeps what it has. mu is held.
func (m *Manager) wanted(p *pod, in *instance) string {
	if _, invalid := p.invalid[in.name]; invalid || m.held.Unknown() {
		return in.cpuset
	}
	if own, ok := p.exclusive[in.name]; ok {
		return own.String()
	}
	return cmp.Or(m.sharedText, in.cpuset)
}

// update gives one container its CPUs, until it has them or has ended. Others do not wait for it, unless [updates]
// runtimes hang.
func (m *Manager) update(ctx context.Context, slots chan struct{}, in *instance) {
	failed := false
	retries.Repeat(ctx, func() error {
		for {
			set, due := m.next(in)
			if !due {
				return nil
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			err := m.set(ctx, in, set)
			<-slots
			if err != nil {
				return err
			}
		}
	}, func(err error, _ time.Duration) {
		if !failed {
			m.node.Logger().Error(err, "A running container does not have its CPUs; trying again", "pod", in.pod,
				"container", in.name)
		}
		failed = true
	})
}

// next returns the CPUs that the container is to be given; if none, its update is over.
func (m *Manager) next(in *instance) (set string, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[in.pod]; p != nil && p.instances[in.id] == in {
		set = m.wanted(p, in)
		due = set != in.cpuset
	}
	in.updating = due
	return set, due
}

// set changes the CPUs of one container. A container that has ended meanwhile is forgotten.
func (m *Manager) set(ctx context.Context, in *instance, set string) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err := runtime.Recover(func() error { return m.setter.SetCPUSet(ctx, in.id, set) })
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		in.cpuset = set
	}
	if p := m.pods[in.pod]; errors.Is(err, runtime.ErrNotFound) && p != nil && p.instances[in.id] == in {
		delete(p.instances, in.id)
		err = nil
	}
	return err
}
