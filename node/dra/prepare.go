package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// reasonFailed is kubelet's reason of the event about claims that cannot be prepared.
const reasonFailed = "FailedPrepareDynamicResources"

// Prepare has the claims of the pod prepared. It implements [lifecycle.Preparer].
func (m *Manager) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	none := lifecycle.PrepareResponse{}
	if !hasClaims(req.Pod) {
		return none, nil
	}
	m.mu.Lock()
	ready := m.ready[req.Pod.UID]
	m.mu.Unlock()
	if ready {
		return none, nil
	}
	began := time.Now()
	err := m.prepare(ctx, req)
	m.measure(operationPrepare, began, err)
	if err != nil && ctx.Err() == nil {
		m.node.Event(runtime.Event{
			Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeWarning, Reason: reasonFailed,
			Message: "Failed to prepare dynamic resources: " + err.Error(), Logged: true,
		})
	}
	if err != nil {
		return none, fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return none, nil
}

// task is a claim that is to be prepared.
type task struct {
	claim   Claim
	drivers map[string][]resourceapi.SkipNodeOperation
}

func (m *Manager) prepare(ctx context.Context, req lifecycle.PrepareRequest) error {
	pod := req.Pod
	refs, err := references(pod)
	if err != nil {
		return err
	}
	if err := m.load(); err != nil {
		return err
	}
	if runs(req.Observed) && m.restored(pod, refs) {
		m.setReady(pod.UID)
		return nil
	}
	tasks, err := m.read(ctx, pod, refs)
	if err != nil {
		return err
	}
	keys := make([]key, 0, len(tasks))
	for _, t := range tasks {
		keys = append(keys, t.claim.key())
	}
	slices.SortFunc(keys, compareKeys)
	unlock, err := m.locks.lock(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	defer unlock()
	due, err := m.addUser(pod.UID, tasks)
	if err != nil {
		return err
	}
	if err := m.callPrepare(ctx, due); err != nil {
		return err
	}
	m.setReady(pod.UID)
	return nil
}

func (m *Manager) setReady(pod types.UID) {
	m.mu.Lock()
	m.ready[pod] = true
	m.mu.Unlock()
	m.wake.Notify()
}

// runs reports whether the pod has a sandbox that is ready.
func runs(observed *runtime.PodStatus) bool {
	return observed != nil && slices.ContainsFunc(observed.Sandboxes,
		func(s runtime.SandboxStatus) bool { return s.State == runtime.SandboxReady })
}

// restored reports whether the state has all claims of a pod. If the pod runs, an earlier agent has prepared them.
func (m *Manager) restored(pod *v1.Pod, refs []reference) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range refs {
		c := m.state.claims[key{pod.Namespace, r.name}]
		if c == nil || !slices.Contains(c.Pods, pod.UID) {
			return false
		}
	}
	return true
}

// read reads the claims of a pod, and checks that they can be prepared. It changes nothing, so that a pod that never
// starts needs no driver to end.
func (m *Manager) read(ctx context.Context, pod *v1.Pod, refs []reference) ([]task, error) {
	tasks := make([]task, 0, len(refs))
	for _, r := range refs {
		claim, err := m.claims.Claim(ctx, pod.Namespace, r.name)
		if err == nil && claim == nil {
			err = errors.New("there is none")
		}
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", r.name, err)
		}
		if err := check(pod, r, claim); err != nil {
			return nil, err
		}
		t := task{Claim{claim.Namespace, claim.Name, claim.UID}, driversOf(claim)}
		for _, name := range slices.Sorted(maps.Keys(t.drivers)) {
			skips := t.drivers[name]
			if len(skips) > 0 && !m.opts.SkipOperations {
				return nil, fmt.Errorf("ResourceClaim %s: the devices of driver %s skip operations (skipNodeOperations %q), "+
					"which needs the feature gate DRAOptionalNodeOperations=true", claim.Name, name, skips)
			}
			if skipsOperation(skips, resourceapi.SkipNodeOperationNodePrepareResources) {
				continue
			}
			if _, err := m.driver(name); err != nil {
				return nil, err
			}
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// driversOf returns the drivers of the devices of a claim, with the operations that all devices of a driver skip.
func driversOf(claim *resourceapi.ResourceClaim) map[string][]resourceapi.SkipNodeOperation {
	drivers := map[string][]resourceapi.SkipNodeOperation{}
	for _, r := range claim.Status.Allocation.Devices.Results {
		skips := slices.Sorted(slices.Values(r.SkipNodeOperations))
		if slices.Contains(skips, resourceapi.SkipNodeOperationAll) {
			skips = []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationAll}
		}
		others, known := drivers[r.Driver]
		switch {
		case !known || slices.Contains(others, resourceapi.SkipNodeOperationAll):
			drivers[r.Driver] = skips
		case !slices.Contains(skips, resourceapi.SkipNodeOperationAll):
			drivers[r.Driver] = slices.DeleteFunc(others, func(op resourceapi.SkipNodeOperation) bool {
				return !slices.Contains(skips, op)
			})
		}
	}
	return drivers
}

// addUser writes down that the pod uses the claims, and returns those that are not prepared. The claims are locked.
func (m *Manager) addUser(pod types.UID, tasks []task) (due []Claim, err error) {
	m.mu.Lock()
	for _, t := range tasks {
		if c := m.state.claims[t.claim.key()]; c != nil && c.UID != t.claim.UID {
			m.mu.Unlock()
			return nil,
				fmt.Errorf("old ResourceClaim with same name %s and different UID %s is still prepared, for pods %v",
					t.claim.Name, c.UID, c.Pods)
		}
	}
	var added []key
	for _, t := range tasks {
		c := m.state.claims[t.claim.key()]
		if c == nil || !slices.Contains(c.Pods, pod) {
			added = append(added, t.claim.key())
			m.state.add(t.claim, t.drivers, pod)
			c = m.state.claims[t.claim.key()]
		}
		if !c.prepared && !slices.Contains(due, c.Claim) {
			due = append(due, c.Claim)
		}
	}
	m.mu.Unlock()
	m.wake.Notify() // pods that have claims are looked after
	if err := m.file.Save(); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, k := range added { // no driver was called
			m.state.drop(k, pod)
		}
		return nil, err
	}
	return due, nil
}

// byDriver returns the claims for which each driver is called, and measures the drivers that are not called. The claims
// are locked.
func (m *Manager) byDriver(claims []Claim, op resourceapi.SkipNodeOperation) map[string][]Claim {
	due := map[string][]Claim{}
	var skipped []Skip
	m.mu.Lock()
	for _, claim := range claims {
		c := m.state.claims[claim.key()]
		for name := range c.Drivers {
			if skipsOperation(c.Skips[name], op) {
				skipped = append(skipped, Skip{name, op})
			} else {
				due[name] = append(due[name], claim)
			}
		}
	}
	m.mu.Unlock()
	for _, s := range skipped {
		m.node.Measure(s)
	}
	return due
}

// callPrepare calls the drivers, and keeps the devices when all of them have succeeded. The claims are locked.
func (m *Manager) callPrepare(ctx context.Context, claims []Claim) error {
	if len(claims) == 0 {
		return nil
	}
	due := m.byDriver(claims, resourceapi.SkipNodeOperationNodePrepareResources)
	devices := map[Claim]map[string][]Device{}
	for _, name := range slices.Sorted(maps.Keys(due)) {
		results, err := callDriver(ctx, m, name, func(ctx context.Context, d Driver) (map[types.UID]Prepared,
			error) {
			return d.Prepare(ctx, due[name])
		})
		if err != nil {
			return fmt.Errorf("NodePrepareResources of driver %s: %w", name, err)
		}
		if err := complete(results, due[name]); err != nil {
			return fmt.Errorf("NodePrepareResources of driver %s: %w", name, err)
		}
		for _, claim := range due[name] {
			r := results[claim.UID]
			if r.Err != nil {
				return fmt.Errorf("NodePrepareResources of driver %s failed for ResourceClaim %s: %w", name, claim.Name,
					r.Err)
			}
			if devices[claim] == nil {
				devices[claim] = map[string][]Device{}
			}
			devices[claim][name] = r.Devices
		}
	}
	if len(devices) > 0 {
		m.mu.Lock()
		for claim, prepared := range devices {
			c := m.state.claims[claim.key()]
			c.Drivers = maps.Clone(c.Drivers) // lists share it
			maps.Copy(c.Drivers, prepared)
		}
		m.state.changed()
		m.mu.Unlock()
		if err := m.file.Save(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, claim := range claims {
		m.state.claims[claim.key()].prepared = true
	}
	return nil
}

// complete reports whether a driver has answered for exactly the claims that it was called with.
func complete[T any](results map[types.UID]T, claims []Claim) error {
	known := map[types.UID]bool{}
	for _, c := range claims {
		known[c.UID] = true
		if _, ok := results[c.UID]; !ok {
			return fmt.Errorf("the driver has skipped ResourceClaim %s", c.Name)
		}
	}
	for uid := range results {
		if !known[uid] {
			return fmt.Errorf("the driver has returned a result for an unknown claim, UID %q", uid)
		}
	}
	return nil
}

// callDriver calls a driver with a deadline.
func callDriver[T any](ctx context.Context, m *Manager, name string, call func(context.Context, Driver) (T,
	error)) (result T, err error) {
	driver, err := m.driver(name)
	if err != nil {
		return result, err
	}
	under := underway.Begin(ctx, "", "driver", name)
	defer under.End()
	ctx, cancel := context.WithTimeout(under, m.opts.CallTimeout)
	defer cancel()
	err = runtime.Recover(func() (err error) {
		result, err = call(ctx, driver)
		return err
	})
	return result, err
}
