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

// Restore reads the checkpoint, unless it is read already. An agent calls it before it admits pods; otherwise the first
// container needs it.
//
// With a [*StateError] the manager is suspended, until [Manager.Reset] or the end of the pods of StateError.Pods: it
// can be used, and does what the package documentation says. With another error, of the disk, no container can be
// created until Restore succeeds.
func (m *Manager) Restore() error {
	if err := m.file.Load(); err != nil {
		return err
	}
	if suspended := m.suspendedBy(); suspended != nil {
		return fmt.Errorf("reading the assignments of CPUs: %w", suspended)
	}
	return nil
}

func (m *Manager) restore() error {
	c, err := readCheckpoint(&m.file.Reader, m.path)
	suspended := (*StateError)(nil)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.As(err, &suspended) {
		return fmt.Errorf("reading the assignments of CPUs: %w", err)
	}
	kept, invalid, problems := m.usable(c.Exclusive)
	unknown := suspended != nil
	if len(problems) > 0 && !m.opts.Leave {
		suspended = &StateError{Path: m.path, Problems: problems}
		for _, uid := range slices.Sorted(maps.Keys(invalid)) {
			suspended.Pods = append(suspended.Pods, types.UID(uid))
		}
	}
	if suspended != nil && m.opts.Reset {
		m.logReset(suspended)
		suspended, unknown, invalid = nil, false, nil
	}
	if suspended != nil {
		suspended.Hint = m.opts.ResetHint
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, containers := range kept {
		p := m.pod(types.UID(uid))
		p.restored = true
		for name, set := range containers {
			p.exclusive[name] = set
		}
	}
	for uid, containers := range invalid {
		p := m.pod(types.UID(uid))
		p.restored = true
		maps.Copy(p.invalid, containers)
	}
	m.suspended, m.unknown = suspended, unknown
	m.share()
	// What the checkpoint has must be what is assigned, and kubelet must not find CPUs in it that are not online.
	if len(problems) > 0 || err != nil || !c.Shared.Equals(m.shared) {
		m.changes++
	}
	m.wake.Notify()
	return nil
}

// usable returns the assignments that go with the machine, and what is wrong with the others.
func (m *Manager) usable(all Assignments) (kept, invalid Assignments, problems []string) {
	kept, invalid = Assignments{}, Assignments{}
	owner := map[int]string{}
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(all[uid])) {
			set := all[uid][name]
			about := fmt.Sprintf("container %s of pod %s has CPUs %s", name, uid, set)
			problem := ""
			switch missing, reserved := set.Difference(m.layout.all), set.Intersection(m.reserved); {
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
	}
	return kept, invalid, problems
}

// content returns the content of the checkpoint, if an assignment has changed since it was written.
func (m *Manager) content(saved uint64) (uint64, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes == saved || m.suspended != nil {
		return saved, nil, nil
	}
	if m.opts.Leave { // then Write removes the file
		for _, p := range m.pods {
			if len(p.exclusive)+len(p.invalid) > 0 {
				return saved, nil, nil
			}
		}
		return m.changes, nil, nil
	}
	c := Checkpoint{Policy: policyStatic, Shared: m.shared, Exclusive: Assignments{}}
	for uid, p := range m.pods {
		if len(p.exclusive) > 0 {
			c.Exclusive[string(uid)] = p.exclusive
		}
	}
	return m.changes, FormatCheckpoint(c), nil
}

// Run gives running containers the CPUs that they are to have, when these change, and writes the checkpoint. It
// implements [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return fmt.Errorf("cpus: %w", runtime.ErrAlreadyRunning)
	}
	var joined sync.WaitGroup
	defer joined.Wait()
	joined.Go(func() { m.file.Run(ctx, m.opts.Logger) })
	slots := make(chan struct{}, updates)
	for {
		if m.file.Load() == nil { // otherwise it is the error of each container
			m.readOnline()
			m.report()
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

// report reports the numbers of CPUs, if they have changed.
func (m *Manager) report() {
	if m.opts.Changed == nil {
		return
	}
	m.mu.Lock()
	shared, changes, due := m.shared.Difference(m.offline).Difference(m.reserved).Size(), m.changes,
		m.reported != m.changes+1
	exclusive := map[int]int{}
	for _, c := range m.layout.cpus {
		exclusive[c.Node] += 0 // a node without exclusive CPUs any more
	}
	for _, p := range m.pods {
		for _, set := range p.exclusive {
			for _, id := range set.UnsortedList() {
				exclusive[m.layout.cpus[m.layout.index[id]].Node]++
			}
		}
	}
	m.reported = changes + 1
	m.mu.Unlock()
	if due {
		m.opts.Changed(shared, exclusive)
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
	if _, invalid := p.invalid[in.name]; invalid || m.unknown {
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
			m.opts.Logger.Error(err, "A running container does not have its CPUs; trying again", "pod", in.pod,
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
