package cri

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// sharedLists makes the lists of inspections that need one. While a list is under way, those that
// come wait for its end, and then share one: a runtime reads all pods also for a list of one pod, so
// a list for each of n pods would cost the square of n. The zero value is ready to use.
type sharedLists struct {
	mu sync.Mutex
	// last has begun last, and next waits for its end. Both may be nil.
	last, next *sharedList
}

// sharedList is a list for one inspection or more. The fields without a comment may be read when
// done is closed.
type sharedList struct {
	done    chan struct{}
	waiters int // guarded by sharedLists.mu

	pods map[types.UID]*runtime.Pod
	// number is that of the list in the index.
	number uint64
	err    error
	gaveUp bool // its inspection, before the others: one of them makes another list
}

// get returns a list that begins after the call. The list of the first of those that wait is
// made in its call: fill sets the fields pods and number, with all pods if others share them.
func (l *sharedLists) get(ctx context.Context, fill func(list *sharedList, all bool) error) (*sharedList, error) {
	for {
		l.mu.Lock()
		list, before := l.next, l.last
		first := list == nil
		if first {
			list = &sharedList{done: make(chan struct{})}
			l.next = list
		}
		list.waiters++
		l.mu.Unlock()
		if first {
			l.make(ctx, list, before, fill)
			return list, list.err
		}
		select {
		case <-list.done:
			if !list.gaveUp {
				return list, list.err
			}
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
}

// make makes the list when the one before it has ended.
func (l *sharedLists) make(ctx context.Context, list, before *sharedList, fill func(list *sharedList, all bool) error) {
	list.err, list.gaveUp = errPanicked, true
	defer close(list.done)
	if before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.next = nil
	if ctx.Err() != nil {
		l.mu.Unlock()
		list.err = ended(ctx)
		return
	}
	l.last = list
	all := list.waiters > 1
	l.mu.Unlock()
	list.err = fill(list, all)
	list.gaveUp = list.err != nil && ctx.Err() != nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == list {
		l.last = nil
	}
}
