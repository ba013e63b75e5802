package pleg_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// shelf is a runtime in memory that answers at once and allocates nothing for a
// list: it shows its two lists in turn, or the first one only.
type shelf struct {
	lists    [2][]*runtime.Pod
	statuses [2]map[types.UID]*runtime.PodStatus
	changes  bool
	// turn is which of the two is shown.
	turn atomic.Int32
	// listed gets a word for each list call.
	listed chan struct{}
}

func newShelf(pods, containers int, changes bool) *shelf {
	s := &shelf{changes: changes, listed: make(chan struct{}, 1)}
	for turn := range s.statuses {
		s.statuses[turn] = map[types.UID]*runtime.PodStatus{}
	}
	for i := range pods {
		ref := plegtest.Ref(types.UID(fmt.Sprintf("0c4b6a3e-%012d", i)))
		for turn := range s.lists {
			pod := &runtime.Pod{PodRef: ref}
			sbx(fmt.Sprintf("%064d", i), "ready")(pod)
			for c := range containers {
				state := runtime.ContainerRunning
				if turn == 1 && c == 0 {
					state = runtime.ContainerExited
				}
				ctr(fmt.Sprintf("%032d%032d", i, c), state)(pod)
			}
			s.lists[turn] = append(s.lists[turn], pod)
			status := &runtime.PodStatus{PodRef: ref, Sandboxes: []runtime.SandboxStatus{{Sandbox: pod.Sandboxes[0]}}}
			for _, c := range pod.Containers {
				status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
			}
			s.statuses[turn][ref.UID] = status
		}
	}
	return s
}

func (s *shelf) ListPods(context.Context) ([]*runtime.Pod, error) {
	turn := s.turn.Load()
	if s.changes {
		turn = 1 - turn
		s.turn.Store(turn)
	}
	s.listed <- struct{}{}
	return s.lists[turn], nil
}

func (s *shelf) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	return s.statuses[s.turn.Load()][ref.UID], nil
}

// BenchmarkRelistInMemory measures what a relist costs the agent itself, calls aside: from
// the list call to the last event in the reader's hands.
func BenchmarkRelistInMemory(b *testing.B) {
	for _, pods := range []int{110, 1000, 5000} {
		for _, changes := range []bool{false, true} {
			name := "unchanged"
			if changes {
				name = "changed"
			}
			for _, containers := range []int{1, 8} {
				b.Run(fmt.Sprintf("pods=%d/containers=%d/%s", pods, containers, name), func(b *testing.B) {
					benchmarkRelistInMemory(b, newShelf(pods, containers, changes), pods)
				})
			}
		}
	}
}

func benchmarkRelistInMemory(b *testing.B, s *shelf, pods int) {
	g := pleg.NewGeneric(s, runtime.NewCache(s, runtime.CacheOptions{}), pleg.Options{RelistPeriod: time.Hour})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Run(ctx)
	}()
	drain := func() {
		for range pods {
			<-g.Watch()
		}
	}
	<-s.listed
	drain()
	b.ReportAllocs()
	for b.Loop() {
		g.Relist()
		<-s.listed
		if s.changes {
			drain()
		}
	}
	stop()
	<-ended
}
