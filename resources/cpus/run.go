package cpus

import (
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
	// updates is the number of running containers whose CPUs are changed at a time, and updateTimeout the time that one may take.
	updates       = 8
	updateTimeout = 10 * time.Second
)

// retries are the delays after a failure.
var retries = flow.Backoff{Min: time.Second, Max: 10 * time.Second}

// Restore reads the checkpoint, unless it is read already. An agent calls it before it admits pods; otherwise the first container needs it. It fails with
// a [*StateError].
func (m *Manager) Restore() error {
	m.mu.Lock()
	restored := m.restored
	m.mu.Unlock()
	if restored {
		return nil
	}
	m.restoring.Lock()
	defer m.restoring.Unlock()
	c, err := readCheckpoint(m.path)
	switch stateErr := (*StateError)(nil); {
	case errors.Is(err, os.ErrNotExist):
	case errors.As(err, &stateErr) && m.opts.Reset:
		m.opts.Logger.Info("The assignments of CPUs are dropped", "reason", stateErr.Error())
	case err != nil:
		return fmt.Errorf("reading the assignments of CPUs: %w", err)
	}
	kept, problems := m.usable(c.Exclusive)
	if len(problems) > 0 {
		if !m.opts.Reset {
			return fmt.Errorf("reading the assignments of CPUs: %w", &StateError{Path: m.path, Problems: problems})
		}
		m.opts.Logger.Info("Assignments of CPUs are dropped", "reasons", problems)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restored {
		return nil
	}
	m.restored = true
	for uid, containers := range kept {
		p := m.pod(types.UID(uid))
		p.restored = true
		for name, set := range containers {
			p.exclusive[name], p.used[name] = set, true
		}
	}
	m.share()
	// What the checkpoint has must be what is assigned, and kubelet must not find CPUs in it that are not online.
	if len(problems) > 0 || err == nil && !c.Shared.Equals(m.shared) {
		m.changes++
	}
	return nil
}

// usable returns the assignments that go with the machine, and what is wrong with the others.
func (m *Manager) usable(all Assignments) (kept Assignments, problems []string) {
	kept = Assignments{}
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
				continue
			}
			for _, id := range set.UnsortedList() {
				owner[id] = uid
			}
			if kept[uid] == nil {
				kept[uid] = map[string]cpuset.CPUSet{}
			}
			kept[uid][name] = set
		}
	}
	return kept, problems
}

// save writes the checkpoint, if an assignment has changed since it was written.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	changes, due := m.changes, m.changes != m.saved
	var c Checkpoint
	if due {
		c = m.checkpoint()
	}
	m.mu.Unlock()
	if !due {
		return nil
	}
	if err := m.write(m.path, FormatCheckpoint(c)); err != nil {
		return fmt.Errorf("writing the assignments of CPUs: %w", err)
	}
	m.mu.Lock()
	m.saved = changes
	m.mu.Unlock()
	return nil
}

// checkpoint returns the content of the checkpoint. mu is held.
func (m *Manager) checkpoint() Checkpoint {
	c := Checkpoint{Policy: policyStatic, Shared: m.shared, Exclusive: Assignments{}}
	for uid, p := range m.pods {
		if len(p.exclusive) > 0 {
			c.Exclusive[string(uid)] = maps.Clone(p.exclusive)
		}
	}
	return c
}

// Run gives running containers the CPUs that they are to have, when these change, and writes the checkpoint. It implements [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	again := m.running
	m.running = true
	m.mu.Unlock()
	if again {
		return fmt.Errorf("cpus: %w", runtime.ErrAlreadyRunning)
	}
	m.wake.Notify() // the numbers are reported
	for failures := 0; ; {
		timer := time.NewTimer(retries.After(failures))
		if failures == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
		if m.Restore() != nil { // it is the error of each container
			continue
		}
		m.report()
		err := errors.Join(m.save(), m.update(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failures++
			if failures == 1 {
				m.opts.Logger.Error(err, "Running containers do not have their CPUs, or the assignments are not written; trying again")
			}
		case failures > 0:
			m.opts.Logger.Info("Running containers have their CPUs, and the assignments are written")
			failures = 0
		}
	}
}

// report reports the numbers of CPUs, if they have changed.
func (m *Manager) report() {
	if m.opts.Changed == nil {
		return
	}
	m.mu.Lock()
	shared, changes, due := m.shared.Size(), m.changes, m.reported != m.changes+1
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

// due is a container whose CPUs change.
type due struct {
	uid types.UID
	id  runtime.ContainerID
	in  *instance
	set string
}

// update gives the running containers the CPUs that they are to have.
func (m *Manager) update(ctx context.Context) error {
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, updates)
		mu    sync.Mutex
		errs  []error
	)
	for _, d := range m.due() {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			err := m.set(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// due returns the containers whose set is not the one that they are to have.
func (m *Manager) due() (out []due) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shared := m.shared.String()
	for uid, p := range m.pods {
		for id, in := range p.instances {
			set := shared
			if own, ok := p.exclusive[in.name]; ok {
				set = own.String()
			}
			if set != "" && set != in.set { // without a shared pool containers keep what they have
				out = append(out, due{uid, id, in, set})
			}
		}
	}
	return out
}

// set changes the CPUs of one container.
func (m *Manager) set(ctx context.Context, d due) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err := runtime.Recover(func() error { return m.setter.SetCPUSet(ctx, d.id, d.set) })
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := m.pods[d.uid]; {
	case err == nil:
		d.in.set = d.set
	case p == nil || p.instances[d.id] != d.in: // it has ended meanwhile
		return nil
	case errors.Is(err, runtime.ErrNotFound):
		delete(p.instances, d.id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("setting the CPUs of container %s of pod %s: %w", d.in.name, d.uid, err)
	}
	return nil
}
