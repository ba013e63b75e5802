// Package fake provides a [podconfig.Source] whose pods a test sets, and a
// [podconfig.Config] whose changes a test sends, and a
// [podconfig.Sink] that keeps what a source delivers.
//
//	source := fake.NewSource("api")
//	agent, err := kubeletkit.New(kubeletkit.Options{Sources: []podconfig.Source{source}, …})
//	source.Set(web, db) // the source has these two pods from now on
//	source.Fail(errors.New("connection lost"))
package fake

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// Source is a [podconfig.Source]. It delivers a snapshot after each change, and one when
// it is run again. It may be changed before and while it runs, and is safe for concurrent
// use.
type Source struct {
	name string
	// wake holds one token when Run has something to do; further tokens are dropped.
	wake chan struct{}
	cond cond.Cond

	mu   sync.Mutex
	pods []*v1.Pod
	// changes counts the changes of pods; delivered is its value at the last delivery of
	// the current run.
	changes, delivered int
	running            bool
	runs               int
	failure            error // ends the current run
	complete           bool
}

var _ podconfig.Source = (*Source)(nil)

// NewSource returns a source that does not deliver anything before its pods are set. If
// its name is "api", its pods are those of an API server, else static pods.
func NewSource(name string) *Source { return &Source{name: name, wake: make(chan struct{}, 1)} }

// Name implements [podconfig.Source].
func (s *Source) Name() string { return s.name }

// Set sets all pods of the source. They are copied.
func (s *Source) Set(pods ...*v1.Pod) {
	s.change(func([]*v1.Pod) []*v1.Pod { return copies(pods) })
}

// Put adds pods. It replaces the pod of the same UID or, if the UID is empty, of the same
// namespace and name.
func (s *Source) Put(pods ...*v1.Pod) {
	s.change(func(old []*v1.Pod) []*v1.Pod {
		list := slices.DeleteFunc(slices.Clone(old), func(p *v1.Pod) bool {
			return slices.ContainsFunc(pods, func(q *v1.Pod) bool {
				if q.UID != "" {
					return p.UID == q.UID
				}
				return p.Namespace == q.Namespace && p.Name == q.Name
			})
		})
		return append(list, copies(pods)...)
	})
}

// Remove removes the pods of these UIDs.
func (s *Source) Remove(uids ...types.UID) {
	s.change(func(old []*v1.Pod) []*v1.Pod {
		return slices.DeleteFunc(slices.Clone(old), func(p *v1.Pod) bool { return slices.Contains(uids, p.UID) })
	})
}

func copies(pods []*v1.Pod) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		out[i] = p.DeepCopy()
	}
	return out
}

func (s *Source) change(next func(old []*v1.Pod) []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = next(s.pods)
	s.changes++
	s.notify()
}

func (s *Source) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.cond.Changed()
}

// Fail makes the current run return the error, or the next run if there is none.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	s.notify()
}

// Complete makes the current run, and each later one, return nil after it has delivered
// the pods.
func (s *Source) Complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	s.notify()
}

// Run implements [podconfig.Source].
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	s.mu.Lock()
	s.running, s.delivered = true, 0
	s.runs++
	s.notify()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = false
		s.cond.Changed()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		s.mu.Lock()
		pods, changes, delivered, failure, complete := slices.Clone(s.pods), s.changes, s.delivered,
			s.failure, s.complete
		s.failure = nil
		s.mu.Unlock()
		if failure != nil {
			return failure
		}
		if changes > delivered {
			sink.Set(pods)
			s.mu.Lock()
			s.delivered = changes
			s.cond.Changed()
			s.mu.Unlock()
		}
		if complete {
			return nil
		}
	}
}

// Runs returns how often Run was called.
func (s *Source) Runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// UntilDelivered waits until the current run has delivered the last change of the pods.
// The reader may not have received it yet. It returns the cause if ctx ends before.
func (s *Source) UntilDelivered(ctx context.Context) error {
	return s.cond.Until(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.running && s.delivered > 0 && s.delivered == s.changes
	}, nil)
}
