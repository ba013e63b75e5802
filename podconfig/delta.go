package podconfig

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeltaSource is for what hears of single pods: a watch, a message broker. [Deltas]
// makes a [Source] of it.
type DeltaSource interface {
	// Name is as that of a [Source].
	Name() string
	// Run tells the sink of pods until ctx ends. What it returns counts as with a
	// [Source]; when it is called again after an error, what it said before still
	// stands, and a Set puts right what it missed meanwhile.
	Run(ctx context.Context, sink Sink) error
}

// Sink takes what a [DeltaSource] says. Its methods never block, may be called from
// any goroutine, and do nothing once Run has returned. What they are given belongs
// to the sink from then on and must not be changed by anybody.
type Sink interface {
	// Set says all that the source wants, and that it wants nothing else. Only this
	// makes a source count as seen, so each run should call it once it knows.
	Set(pods []*v1.Pod)
	// Update adds pods and replaces those of the same UID. A pod that is to end
	// gracefully is updated with its deletion timestamp.
	Update(pods ...*v1.Pod)
	// Remove says that the pods of these UIDs are not wanted, if they ever were.
	Remove(uids ...types.UID)
}

// Deltas returns a Source that runs s. In a [Mux], Update and Remove cost what the
// pods do that they name, however many others the source has. Run by anything else,
// it hands over the full list each time, from the first Set on.
func Deltas(s DeltaSource) Source { return deltaSource{s} }

type deltaSource struct{ DeltaSource }

// Run implements [Source].
func (s deltaSource) Run(ctx context.Context, set func(pods []*v1.Pod)) error {
	return s.DeltaSource.Run(ctx, &listSink{set: set})
}

// listSink makes full lists of deltas.
type listSink struct {
	set func(pods []*v1.Pod)

	mu sync.Mutex
	// pods are those that were handed over last, which is not to be written to; known
	// says that there was a Set.
	pods  []*v1.Pod
	known bool
}

func (s *listSink) Set(pods []*v1.Pod) {
	s.change(func([]*v1.Pod) []*v1.Pod { s.known = true; return pods })
}

func (s *listSink) Update(pods ...*v1.Pod) {
	s.change(func(old []*v1.Pod) []*v1.Pod {
		list := slices.Clone(old)
		for _, pod := range pods {
			if pod == nil {
				continue
			}
			if i := slices.IndexFunc(list, func(p *v1.Pod) bool { return p != nil && p.UID == pod.UID }); i >= 0 {
				list[i] = pod
			} else {
				list = append(list, pod)
			}
		}
		return list
	})
}

func (s *listSink) Remove(uids ...types.UID) {
	s.change(func(old []*v1.Pod) []*v1.Pod {
		return slices.DeleteFunc(slices.Clone(old), func(p *v1.Pod) bool { return p != nil && slices.Contains(uids, p.UID) })
	})
}

func (s *listSink) change(next func(old []*v1.Pod) []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = next(s.pods)
	if s.known {
		s.set(s.pods)
	}
}
