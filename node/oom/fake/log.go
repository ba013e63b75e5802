// Package fake has a log of the kernel in memory, for tests of package oom and of agents with it.
package fake

import (
	"context"
	"fmt"
	"sync"

	"github.com/kubeletkit/kubeletkit/node/oom"
)

// Log is an [oom.Log] in memory. The zero value is empty and ready.
type Log struct {
	mu      sync.Mutex
	records [][]byte
	err     error
	more    chan struct{} // closed when there is a record
	closed  bool
}

// Open returns the log, for [oom.Options].
func (l *Log) Open() (oom.Log, error) { return l, nil }

// Add adds messages of the kernel.
func (l *Log) Add(messages ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.records = append(l.records, fmt.Appendf(nil, "6,%d,1000,-;%s\n", len(l.records), m))
	}
	l.wake()
}

// AddRecord adds a record as it is.
func (l *Log) AddRecord(record []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, record)
	l.wake()
}

// Fail makes the next read, and all after it, fail.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.wake()
}

// Closed reports whether the log is closed.
func (l *Log) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Log) wake() {
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// Wait implements [oom.Log].
func (l *Log) Wait(ctx context.Context) error {
	l.mu.Lock()
	if len(l.records) > 0 || l.err != nil {
		l.mu.Unlock()
		return nil
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	more := l.more
	l.mu.Unlock()
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next implements [oom.Log].
func (l *Log) Next(buf []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	if len(l.records) == 0 {
		return 0, oom.ErrNoRecord
	}
	record := l.records[0]
	l.records = l.records[1:]
	if len(record) > len(buf) {
		return 0, oom.ErrLost
	}
	return copy(buf, record), nil
}

// Close implements [oom.Log].
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}
