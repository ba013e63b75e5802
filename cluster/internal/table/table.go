// Package table holds the needed fields of all objects of one type, from the first read on.
// With a checkpoint it also holds those of an earlier run of the agent.
package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// patience is how long Read waits for the API server to answer.
	patience = time.Second
	// saveDelay is how long changes are collected before they are kept.
	saveDelay = time.Second
	// maxWaiting is the maximum number of readers that wait. Some of them may be gone.
	maxWaiting = 10_000
)

// Options are the settings of a [Table].
type Options[T any] struct {
	// Resource describes the objects. Its Failed is set by the table.
	Resource listwatch.Resource
	// Reduce returns the needed fields of an object, and its key. If ok is false, the object is left out.
	Reduce func(object any) (key string, value T, ok bool)
	// Checkpoint keeps the table under the name State. If nil, nothing is kept.
	Checkpoint runtime.States
	State      string
	// Changed is called after each answer of the API server. It must not block. If nil, nothing is
	// called.
	Changed func()
	// Has reports whether the values contain what the reader needs. If nil, any values do.
	Has func(reader string, values map[string]T) bool
	// Ready is called once for each reader whose Read came too early, when the values contain
	// what it needs. It must not block. If nil, nothing is called. If 10,000 readers wait, a further
	// reader takes the place of another one, for which Ready is not called.
	Ready func(reader string)
	// Logger receives failures of reads.
	Logger logr.Logger
}

// Table has the values of all objects. Its methods are safe for concurrent use.
type Table[T any] struct {
	opts    Options[T]
	started atomic.Bool
	// needed is closed by the first Read, read by the first answer of the API server.
	needed, read chan struct{}
	need         sync.Once
	// dirty holds one token while there is something to keep.
	dirty flow.Signal

	mu sync.Mutex
	// values are from the API server, or before its first answer from the checkpoint. They are nil
	// if neither has any. They are not changed while shared is true: then a reader may have them.
	values map[string]T
	shared bool
	// version grows with each change of values.
	version uint64
	// waiting are the readers for which Ready will be called.
	waiting map[string]struct{}
	// err is the error of the latest request. An answer resets it.
	err error
}

// New returns a table.
func New[T any](opts Options[T]) *Table[T] {
	return &Table[T]{opts: opts, needed: make(chan struct{}), read: make(chan struct{}), dirty: flow.NewSignal(),
		waiting: map[string]struct{}{}}
}

// ErrNotRead is returned by Read if there are no values.
var ErrNotRead = errors.New("the API server has not answered yet")

// Read calls f with the values by their keys, which f must not change. It may keep them. If they do not contain what
// the reader needs, Options.Ready is called for it later, unless the reader is empty. Read waits for the first answer
// of the API server, for a second at most and until done is closed. It does not wait after a request has failed.
// Without an answer, f gets the values of the checkpoint. If there are none, Read returns an error that wraps
// [ErrNotRead].
func (t *Table[T]) Read(done <-chan struct{}, reader string, f func(values map[string]T)) error {
	t.require()
	if t.failure() == nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-t.read:
		case <-done:
		case <-timer.C:
		}
	}
	for {
		values, version, err := t.snapshot()
		if reader != "" && !t.has(reader, values) && !t.wait(reader, version) {
			continue
		}
		if err == nil {
			f(values)
		}
		return err
	}
}

// wait has Ready called for the reader. It returns false if the values are not those of the version any more.
func (t *Table[T]) wait(reader string, version uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version != version {
		return false
	}
	if _, waits := t.waiting[reader]; !waits && len(t.waiting) >= maxWaiting {
		for other := range t.waiting {
			delete(t.waiting, other)
			break
		}
	}
	t.waiting[reader] = struct{}{}
	return true
}

// ReadNow is Read without waiting, and without a reader.
func (t *Table[T]) ReadNow(f func(values map[string]T)) error {
	t.require()
	values, _, err := t.snapshot()
	if err == nil {
		f(values)
	}
	return err
}

// has reports whether the values contain what the reader needs.
func (t *Table[T]) has(reader string, values map[string]T) bool {
	return values != nil && (t.opts.Has == nil || t.opts.Has(reader, values))
}

// snapshot returns the values, which are not changed any more, and their version; or the error of Read if there are
// none.
func (t *Table[T]) snapshot() (values map[string]T, version uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.values != nil:
		t.shared = true
		return t.values, t.version, nil
	case t.err != nil:
		return nil, t.version, fmt.Errorf("%w: %w", ErrNotRead, t.err)
	default:
		return nil, t.version, ErrNotRead
	}
}

// require lets Run begin, with the values of the checkpoint until the API server has answered.
func (t *Table[T]) require() {
	t.need.Do(func() {
		var kept map[string]T
		if t.opts.Checkpoint != nil && t.opts.Checkpoint.LoadState(t.opts.State, &kept) {
			t.mu.Lock()
			t.values, t.version = kept, t.version+1
			t.mu.Unlock()
		}
		close(t.needed)
	})
}

func (t *Table[T]) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Run requests the objects until ctx ends, beginning with the first Read, and then returns
// nil. A second call returns an error that wraps [runtime.ErrAlreadyRunning].
func (t *Table[T]) Run(ctx context.Context) error {
	if !t.started.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	select {
	case <-ctx.Done():
		return nil
	case <-t.needed:
	}
	var keeper sync.WaitGroup
	defer keeper.Wait()
	if t.opts.Checkpoint != nil {
		keeper.Go(func() { t.keep(ctx) })
	}
	r := t.opts.Resource
	r.Failed = t.failed
	listwatch.Run(ctx, r, (*store[T])(t))
	return nil
}

// keep keeps changes until ctx ends. Then it keeps the last ones.
func (t *Table[T]) keep(ctx context.Context) {
	flow.Saver{Dirty: t.dirty, Wait: saveDelay, Save: func() error {
		values, _, _ := t.snapshot()
		t.opts.Checkpoint.KeepState(t.opts.State, values)
		return nil
	}}.Run(ctx)
}

func (t *Table[T]) failed(err error, first bool) {
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	if first {
		t.opts.Logger.Error(err, "Objects cannot be read from the API server; it is tried again",
			"objects", t.opts.Resource.Name)
	}
}

// set sets or removes one value, as the API server has reported it.
func (t *Table[T]) set(key string, value T, ok bool) {
	t.mu.Lock()
	if t.shared {
		t.values, t.shared = maps.Clone(t.values), false
	}
	if ok {
		t.values[key] = value
	} else {
		delete(t.values, key)
	}
	t.mu.Unlock()
	t.changed()
}

// changed notes that the API server has answered, and reports it.
func (t *Table[T]) changed() {
	t.mu.Lock()
	t.version++
	t.err = nil
	waiting := slices.Collect(maps.Keys(t.waiting))
	t.mu.Unlock()
	t.dirty.Notify()
	if t.opts.Changed != nil {
		t.opts.Changed()
	}
	if len(waiting) == 0 {
		return
	}
	values, _, _ := t.snapshot()
	for _, reader := range waiting {
		if !t.has(reader, values) {
			continue
		}
		t.mu.Lock()
		_, waits := t.waiting[reader]
		delete(t.waiting, reader)
		t.mu.Unlock()
		if waits && t.opts.Ready != nil {
			t.opts.Ready(reader)
		}
	}
}

// store receives what the reflector reads. It implements cache.ReflectorStore, whose methods
// are called one at a time, Replace first.
type store[T any] Table[T]

// Add implements cache.ReflectorStore.
func (s *store[T]) Add(object any) error {
	t := (*Table[T])(s)
	key, value, ok := t.opts.Reduce(object)
	t.set(key, value, ok)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store[T]) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store[T]) Delete(object any) error {
	t := (*Table[T])(s)
	key, value, _ := t.opts.Reduce(object)
	t.set(key, value, false)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store[T]) Replace(list []any, _ string) error {
	t := (*Table[T])(s)
	values := make(map[string]T, len(list))
	for _, object := range list {
		if key, value, ok := t.opts.Reduce(object); ok {
			values[key] = value
		}
	}
	t.mu.Lock()
	t.values, t.shared = values, false
	t.mu.Unlock()
	t.changed()
	select {
	case <-t.read:
	default:
		close(t.read)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store[T]) Resync() error { return nil }
