package users

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// restore notes the ranges in the records of all pods, and those in use. Only the first call that
// succeeds does so. A record that cannot be used concerns its pod only.
func (m *Manager) restore(ctx context.Context) error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	m.mu.Lock()
	restored := m.ranges != nil
	m.mu.Unlock()
	if restored {
		return nil
	}
	ranges, err := m.pool(ctx)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(m.podsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	type found struct {
		pod string
		own Range
		err error
	}
	var list []found
	for _, e := range entries {
		own, err := readRecord(filepath.Join(m.podsDir, e.Name()))
		if !errors.Is(err, os.ErrNotExist) {
			list = append(list, found{e.Name(), own, err})
		}
	}
	used, usedErr := m.opts.InUse()

	for i := range list {
		if f := &list[i]; f.err == nil {
			f.err = ranges.Assign(f.pod, f.own)
		}
	}
	for _, u := range used {
		ranges.Reserve(u)
	}
	m.mu.Lock()
	m.ranges, m.used = ranges, used
	m.mu.Unlock()

	for _, f := range list {
		if f.err != nil {
			m.log.Error(f.err, "The record of the user namespace of a pod cannot be used; other pods are "+
				"not affected", "podUID", f.pod)
		}
	}
	if usedErr != nil {
		m.log.Error(usedErr,
			"The user IDs of processes of the machine are not known; a pod may get the same ones")
	}
	return nil
}

// pool returns the pool, in which nobody has a range yet.
func (m *Manager) pool(ctx context.Context) (*Ranges, error) {
	pool, err := m.opts.Pool(ctx)
	if err != nil {
		return nil, err
	}
	length := uint32(m.opts.IDsPerPod)
	if pool == (Range{}) { // all whole ranges above those of the host
		pool = Range{First: length, Length: uint32((idSpace - uint64(length)) / uint64(length) * uint64(length))}
	}
	ranges, err := NewRanges(pool, length)
	if err != nil {
		return nil, err
	}
	if ranges.Size() < m.opts.MaxPods {
		return nil, fmt.Errorf("the pool %s has ranges for %d pods, but the node may have %d", pool,
			ranges.Size(), m.opts.MaxPods)
	}
	return ranges, nil
}
