package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
)

// Stopped has the claims unprepared that only this pod uses. It implements [lifecycle.StoppedHandler].
func (m *Manager) Stopped(ctx context.Context, req lifecycle.EndedRequest) error {
	return m.Ended(ctx, req)
}

// Ended is like Stopped, for a pod that the agent has not seen stop. It implements [lifecycle.EndedHandler].
func (m *Manager) Ended(ctx context.Context, req lifecycle.EndedRequest) error {
	if err := m.load(); err != nil && !hasClaims(req.Pod) {
		return nil // Gone asks again
	}
	return m.release(ctx, req.Pod.UID)
}

// Gone is like Ended, for a pod that the agent has not seen end. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(ctx context.Context, req lifecycle.GoneRequest) error {
	return m.release(ctx, req.Pod.UID)
}

// release has the claims unprepared that only this pod uses.
func (m *Manager) release(ctx context.Context, pod types.UID) error {
	if err := m.load(); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.ready, pod)
	keys := m.state.of(pod)
	m.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	began := time.Now()
	err := m.releaseClaims(ctx, pod, keys)
	m.measure(operationUnprepare, began, err)
	return err
}

func (m *Manager) releaseClaims(ctx context.Context, pod types.UID, keys []key) error {
	unlock, err := m.locks.lock(ctx, keys)
	if err != nil {
		return err
	}
	defer unlock()
	err = m.callUnprepare(ctx, pod, keys)
	if m.file.Save() != nil { // a full disk must not keep the pod from ending
		m.file.SaveLater()
		m.wake.Notify()
	}
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

// callUnprepare calls the drivers, and drops the claims of which all drivers have succeeded. The claims are locked.
func (m *Manager) callUnprepare(ctx context.Context, pod types.UID, keys []key) error {
	var last []Claim
	m.mu.Lock()
	for _, k := range keys {
		c := m.state.claims[k]
		if c == nil || !slices.Contains(c.Pods, pod) {
			continue // it was released while this call waited for the lock
		}
		if len(c.Pods) > 1 {
			m.state.drop(k, pod)
			continue
		}
		c.prepared = false
		last = append(last, c.Claim)
	}
	m.mu.Unlock()
	due := m.byDriver(last, resourceapi.SkipNodeOperationNodeUnprepareResources)
	for _, name := range slices.Sorted(maps.Keys(due)) {
		results, err := callDriver(ctx, m, name, func(ctx context.Context, d Driver) (map[types.UID]error,
			error) {
			return d.Unprepare(ctx, due[name])
		})
		if err == nil {
			err = complete(results, due[name])
		}
		if err != nil {
			return fmt.Errorf("NodeUnprepareResources of driver %s: %w", name, err)
		}
		for _, claim := range due[name] {
			if err := results[claim.UID]; err != nil {
				return fmt.Errorf("NodeUnprepareResources of driver %s failed for ResourceClaim %s: %w",
					name, claim.Name, err)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, claim := range last {
		m.state.drop(claim.key(), pod)
	}
	return nil
}
