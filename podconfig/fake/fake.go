// Package fake provides a [podconfig.Source] whose pods a test sets.
//
//	src := fake.NewSource("api")
//	agent, err := kubeletkit.New(kubeletkit.Options{Sources: []podconfig.Source{src}, …})
//	src.Set(web, db) // these two are wanted from now on
//	src.Fail(errors.New("connection lost"))
//
// It keeps the contract of [podconfig.Source]: every delivery is a full snapshot, and
// the pods of one that is run again after a failure are delivered again.
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

// Source is a [podconfig.Source]. It may be set before and while it runs, and is
// safe for concurrent use.
type Source struct {
	name string
	// wake has room for one: it is full when Run is to look.
	wake chan struct{}
	cond cond.Cond

	mu sync.Mutex
	// pods are wanted. said counts what was said, delivered is how much of it the run
	// under way has handed over.
	pods            []*v1.Pod
	said, delivered int
	running         bool
	runs            int
	// failure ends the run; ended does so for good.
	failure error
	ended   bool
}

var _ podconfig.Source = (*Source)(nil)

// NewSource returns a source that has not said yet what it wants. Pods of one
// with the name "api" are those of an API server, of others static ones.
func NewSource(name string) *Source { return &Source{name: name, wake: make(chan struct{}, 1)} }

// Name implements [podconfig.Source].
func (s *Source) Name() string { return s.name }

// Set makes these the pods that are wanted, and no others. The caller may go on
// changing its own: they are copied.
func (s *Source) Set(pods ...*v1.Pod) {
	s.change(func([]*v1.Pod) []*v1.Pod { return copies(pods) })
}

// Put adds pods, or replaces those of the same UID, or of the same namespace and
// name where that is empty.
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

// Remove makes the pods of these UIDs unwanted.
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
	s.said++
	s.poke()
}

func (s *Source) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it is to look already
	}
	s.cond.Changed()
}

// Fail ends the run under way, or the next one at its beginning, with that error.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	s.poke()
}

// Complete ends the run under way without an error: the source has no more to say.
func (s *Source) Complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.poke()
}

// Run implements [podconfig.Source].
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	s.mu.Lock()
	s.running, s.delivered = true, 0
	s.runs++
	s.poke()
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
		pods, said, news, failure, ended := slices.Clone(s.pods), s.said, s.said > s.delivered, s.failure, s.ended
		s.failure = nil
		s.mu.Unlock()
		if failure != nil {
			return failure
		}
		if news {
			sink.Set(pods)
			s.mu.Lock()
			s.delivered = said
			s.cond.Changed()
			s.mu.Unlock()
		}
		if ended {
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

// UntilDelivered returns when a run is under way and what was set last has been
// handed over, though not necessarily acted on.
func (s *Source) UntilDelivered(ctx context.Context) error {
	return s.cond.Until(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.running && s.delivered > 0 && s.delivered == s.said
	}, nil)
}
