package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRuntimeWithoutEventStream(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.Stream.Refuses = errNoStream })
		r.Set("p", ctr("a", "running"))
		r.run()
		r.pass(10 * time.Minute)
		assert.Equal(t, 601, r.Lists(), "generic for good")
		assert.Len(t, r.Opened(), 1)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
		assert.NoError(t, r.g.Healthy())
		logged := r.metrics.now().logged
		require.Len(t, logged, 1)
		assert.Contains(t, logged[0], "has no event stream")
		require.Len(t, r.metrics.now().connected, 1)
		assert.ErrorIs(t, r.metrics.now().connected[0], errors.ErrUnsupported)
	})
}

func TestBrokenStream(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.settled()
		r.pass(time.Minute)
		lists, began := r.counts(), time.Now()

		r.BreakStream(runtime.ErrUnavailable)
		synctest.Wait()
		assert.Equal(t, 1, lists(), "one relist at once")
		r.Set("p", ctr("a", "exited"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain(), "the period is short from then on")
		r.pass(59 * time.Second)
		assert.Equal(t, 60, lists())

		// Pauses double from 100 ms to 5 s, and are never the same.
		attempts := r.Opened()[1:]
		pause := 0.1
		for i, at := range attempts[1:] {
			pause = min(2*pause, 4)
			took := at.Sub(attempts[i]).Seconds()
			assert.GreaterOrEqual(t, took, pause-0.001)
			assert.LessOrEqual(t, took, 1.25*pause+0.001)
		}
		assert.Greater(t, len(attempts), 60/5)
		assert.InDelta(t, 0.1, attempts[0].Sub(began).Seconds(), 0.03)

		r.Do(func(s *plegtest.State) { s.Stream.Refuses = nil })
		r.pass(10 * time.Second)
		lists()
		r.Set("p", ctr("b", "running"))
		assert.Len(t, r.drain(), 1)
		r.pass(280 * time.Second)
		assert.Zero(t, lists(), "long after one reconciling relist")
		assert.Len(t, r.metrics.now().logged, 3, "up, broken, up")
		connected := r.metrics.now().connected
		assert.NoError(t, connected[0])
		assert.ErrorIs(t, connected[1], plegtest.ErrBroken)
		assert.ErrorIs(t, connected[2], runtime.ErrUnavailable)
		assert.NoError(t, connected[len(connected)-1])
		assert.Empty(t, r.metrics.now().missed, "without a stream nothing is missed")
	})
}

// TestChangeWhileTheStreamIsOpenedAnew: what happens between the last relist and the
// new stream is found by the relist after it.
func TestChangeWhileTheStreamIsOpenedAnew(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.settled()
		r.BreakStream(nil)
		r.pass(50 * time.Millisecond)
		r.Set("p", ctr("a", "exited"))
		r.pass(100 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
	})
}

// TestStreamThatIsNotAnnounced: containerd sends nothing before the first event, so on a
// quiet node the period grows with each relist that finds nothing.
func TestStreamThatIsNotAnnounced(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.Stream.Unannounced = true })
		r.Set("p", ctr("a", "running"))
		r.run()
		began := time.Now()
		var lists []int // the second of each
		r.Do(func(s *plegtest.State) {
			s.OnList = func([]*runtime.Pod) { lists = append(lists, int(time.Since(began).Seconds())) }
		})
		r.pass(1500 * time.Second)
		var gaps []int
		first := 0
		r.Do(func(s *plegtest.State) {
			first = lists[0]
			for i := range lists[1:] {
				gaps = append(gaps, lists[i+1]-lists[i])
			}
		})
		// Whether the first relist or the opening of the stream came first, is open.
		assert.Equal(t, []int{2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300}[first-1:][:len(gaps)], gaps)
		assert.GreaterOrEqual(t, len(gaps), 8)
		r.drain()

		// Its first hint is the proof.
		count := r.counts()
		r.Set("p", ctr("a", "exited"))
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Equal(t, 1, count())
		r.pass(299 * time.Second)
		assert.Zero(t, count())
	})
}

func TestSilentStreamIsGivenUp(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.Set("q", ctr("b", "running"))
		r.settled()
		r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
		lists := r.counts()
		r.Set("p", ctr("a", "exited"))
		r.Set("q", ctr("b", "exited"))
		r.pass(301 * time.Second)
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[ContainerDied b]"}, r.drain())
		assert.Equal(t, []int{2}, r.metrics.now().missed)
		assert.Len(t, slices.DeleteFunc(r.metrics.now().logged,
			func(s string) bool { return !strings.Contains(s, "had not reported") }), 2)
		require.Len(t, r.Opened(), 1)
		r.pass(time.Second)
		require.Len(t, r.Opened(), 2, "opened anew")
		assert.ErrorIs(t, r.metrics.now().connected[1], pleg.ErrMissedChanges)

		// It still delivers nothing, so the period stays short.
		lists()
		r.pass(60 * time.Second)
		assert.InDelta(t, 60, lists(), 1)
		for i := range 20 {
			r.Set("p", ctr(fmt.Sprint("a", i), "running"))
			r.pass(2 * time.Second)
			assert.Len(t, r.drain(), 1)
		}
		assert.Greater(t, len(r.Opened()), 5, "it is opened again and again")
		assert.Less(t, len(r.Opened()), 20)

		// After a useful hint the period grows by doubling.
		r.Do(func(s *plegtest.State) { s.Stream.Silent = false })
		r.pass(10 * time.Second)
		r.Set("p", ctr("c", "running"))
		assert.Len(t, r.drain(), 1)
		r.pass(600 * time.Second)
		assert.Equal(t, 300*time.Second, r.period())
	})
}

func TestStreamThatMissesSomePodsIsGivenUp(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.settled()
		for i := range 6 {
			require.Len(t, r.Opened(), 1)
			r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
			r.Set("p", ctr(fmt.Sprint(i), "running"))
			r.Do(func(s *plegtest.State) { s.Stream.Silent = false })
			r.Hint(runtime.Hint{Pod: plegtest.Ref("other"), ID: "x"}) // not silent
			r.g.Relist()
			r.pass(1500 * time.Millisecond)
		}
		assert.Equal(t, []int{1, 1, 1, 1, 1, 1}, r.metrics.now().missed)
		require.Len(t, r.Opened(), 2)
	})
}

// TestHungRuntime: while the stream is reliable there are no lists, so other calls have to
// show that the runtime hangs.
func TestHungRuntime(t *testing.T) {
	for _, tc := range []struct {
		name   string
		notice func(r *rig)
	}{
		{"a hint", func(r *rig) { r.Set("p", ctr("a", "exited")) }},
		{"the stream breaks", func(r *rig) { r.BreakStream(runtime.ErrUnavailable) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEvented(t, pleg.EventedOptions{}, func(r *rig) {
				r.Set("p", ctr("a", "running"))
				r.settled()
				r.pass(30 * time.Second)
				r.Do(func(s *plegtest.State) { s.ListHangs, s.Hung["p"] = true, true })
				tc.notice(r)
				r.pass(3*time.Minute - 2*time.Second)
				require.NoError(t, r.g.Healthy())
				r.pass(3 * time.Second)
				require.ErrorContains(t, r.g.Healthy(), "threshold is ")

				r.Do(func(s *plegtest.State) { s.ListHangs = false; clear(s.Hung); s.Stream.Refuses = nil })
				r.Set("p", ctr("a", "exited"), ctr("b", "running"))
				r.pass(2*time.Minute + 10*time.Second)
				require.NoError(t, r.g.Healthy())
				assert.Len(t, r.drain(), 1)
			})
		})
	}
}

func TestWideRelistsAreHealthy(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.settled()
		for range 20 {
			r.pass(time.Minute)
			require.NoError(t, r.g.Healthy())
		}
		r.Do(func(s *plegtest.State) { s.ListErr = plegtest.ErrInjected })
		r.pass(5 * time.Minute)
		require.NoError(t, r.g.Healthy())
		r.pass(3 * time.Minute)
		require.ErrorIs(t, r.g.Healthy(), plegtest.ErrInjected)
	})
}

// faulty is a source that breaks its contract.
type faulty struct{ *plegtest.Runtime }

func (faulty) WatchEvents(context.Context, func(), func(runtime.Hint)) error { return nil }

func TestSourceThatEndsWithoutAnError(t *testing.T) {
	inRig(t, func(r *rig) pleg.Generator {
		return pleg.NewEvented(faulty{r.Runtime}, r.cache,
			pleg.EventedOptions{Options: r.metrics.options(pleg.Options{})})
	}, func(r *rig) {
		r.run()
		r.pass(time.Second)
		require.NotEmpty(t, r.metrics.now().connected)
		assert.ErrorIs(t, r.metrics.now().connected[0], pleg.ErrStreamEnded)
		assert.Less(t, len(r.metrics.now().connected), 6)
	})
}

// lister hides everything of a runtime but its list, and what it wraps.
type lister struct{ runtime.Lister }

type wrapped struct{ lister }

func (w wrapped) Unwrap() any { return w.Lister }

func TestWrappedRuntimeKeepsItsStream(t *testing.T) {
	for _, tc := range []struct {
		name   string
		wrap   func(l lister) runtime.Lister
		lists  int // in ten quiet minutes
		logged string
	}{
		{"with Unwrap", func(l lister) runtime.Lister { return wrapped{l} }, 4, "event stream is established"},
		{"without", func(l lister) runtime.Lister { return l }, 601, "has no event stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inRig(t, func(r *rig) pleg.Generator {
				return pleg.NewEvented(tc.wrap(lister{r.Runtime}), r.cache,
					pleg.EventedOptions{Options: r.metrics.options(pleg.Options{})})
			}, func(r *rig) {
				r.Set("p", ctr("a", "running"))
				r.run()
				r.pass(10 * time.Minute)
				assert.LessOrEqual(t, r.Lists(), tc.lists)
				assert.Greater(t, r.Lists(), tc.lists/2)
				require.Len(t, r.metrics.now().logged, 1)
				assert.Contains(t, r.metrics.now().logged[0], tc.logged)
				assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
			})
		})
	}
}
