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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestHintIsOneReadAndNoWaiting(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.Set("q", sbx("t", "ready"), ctr("x", "running"))
		r.settled()
		lists := r.counts()

		r.Set("p", sbx("s", "ready"), ctr("b", "running"), ctr("a", "exited"))
		assert.Equal(t, []string{"p[ContainerStarted b ContainerDied a]"}, r.drain(), "with no time in between")
		assert.Equal(t, "a=exited b=running s=ready", r.cached("p"))
		assert.Equal(t, 1, r.Inspections("q"))

		r.pass(299 * time.Second)
		assert.Zero(t, lists())
		r.pass(2 * time.Second)
		assert.Equal(t, 1, lists())
		assert.Empty(t, r.drain(), "told once")
		assert.LessOrEqual(t, r.Inspections("p"), 3, "two hints cost two reads at most")
		assert.Equal(t, 1, r.Inspections("q"))
	})
}

func TestHintsDuringAnInspectionCostOneMore(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"))
		r.settled()
		r.Do(func(s *plegtest.State) { s.InspectTakes = 100 * time.Millisecond })
		before := r.Inspections("p")
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.pass(10 * time.Millisecond)
		for range 50 {
			r.Hint(runtime.Hint{Pod: plegtest.Ref("p"), ID: "a"})
			r.pass(time.Millisecond)
		}
		r.pass(time.Second)
		assert.Equal(t, before+2, r.Inspections("p"))
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
	})
}

// TestExitIsToldOnce: whichever comes first, the hint or the relist.
func TestExitIsToldOnce(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Millisecond} {
		for _, takes := range []time.Duration{0, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("hint after %s, list takes %s", late, takes), func(t *testing.T) {
				inEvented(t, pleg.EventedOptions{}, func(r *rig) {
					r.Set("p", sbx("s", "ready"), ctr("a", "running"))
					r.settled()
					r.Do(func(s *plegtest.State) {
						s.ListTakes, s.InspectTakes = takes, 5*time.Millisecond
						s.Stream.Delays = func() []time.Duration { return []time.Duration{late} }
					})
					for _, state := range []runtime.ContainerState{"running", "exited"} {
						r.g.Relist() // begins before the change
						r.Set("p", sbx("s", "ready"), ctr("b", state), ctr("a", "exited"))
						r.g.Relist()
						r.pass(2 * time.Second)
					}
					assert.Equal(t, []string{"p[ContainerStarted b ContainerDied a ContainerDied b]"}, r.drain())
					assert.Empty(t, r.metrics.now().missed)
				})
			})
		}
	}
}

func TestExitThatIsGoneAtTheNextReadIsTold(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.Do(func(s *plegtest.State) {
			s.Stream.Delays = func() []time.Duration { return []time.Duration{100 * time.Millisecond} }
		})
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.Set("p", sbx("s", "ready"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a ContainerRemoved a]"}, r.drain())
	})
}

// TestBacklogOfGonePods: containerd replays minutes of events to who subscribes.
func TestBacklogOfGonePods(t *testing.T) {
	inEvented(t, pleg.EventedOptions{Options: pleg.Options{MaxInspections: 8}}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.InspectTakes = 2 * time.Millisecond })
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		for i := range 300 {
			ref := plegtest.Ref(types.UID(fmt.Sprint("gone", i)))
			for range 4 {
				r.Do(func(s *plegtest.State) {
					s.Stream.Backlog = append(s.Stream.Backlog, runtime.Hint{Pod: ref, ID: fmt.Sprint("c", i)}, runtime.Hint{Pod: plegtest.Ref("p"), ID: "old"})
				})
			}
		}
		r.run()
		r.pass(10 * time.Second)
		assert.Equal(t, []string{"p[SandboxStarted s ContainerStarted a]"}, r.drain())
		for i := range 300 {
			assert.LessOrEqual(t, r.Inspections(types.UID(fmt.Sprint("gone", i))), 4, "a read for a hint")
		}
		r.Do(func(s *plegtest.State) { assert.LessOrEqual(t, s.MostInspections, 8) })
		assert.Equal(t, 1, pleg.Remembered(r.g))
		assert.Len(t, r.cache.Seen(""), 0, "nor does the cache remember them")
		assert.Equal(t, 300*time.Second, r.period())
	})
}

func TestHintsWithoutAPod(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.Set("q", sbx("t", "ready"), ctr("b", "running"))
		r.settled()
		lists := r.counts()
		r.Do(func(s *plegtest.State) { s.Stream.Unnamed = true })

		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.Set("q", sbx("t", "not-ready"), ctr("b", "running"))
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[SandboxDied t]"}, r.drain())
		assert.Zero(t, lists())

		// What nobody knows is found by a relist, once a second at most.
		r.pass(time.Minute)
		lists()
		r.Set("r", sbx("u", "ready"), ctr("c", "running"))
		assert.Equal(t, []string{"r[SandboxStarted u ContainerStarted c]"}, r.drain())
		assert.Equal(t, 1, lists())
		for range 50 {
			r.Hint(runtime.Hint{ID: "unknown"}, runtime.Hint{})
			r.pass(100 * time.Millisecond)
		}
		assert.Equal(t, 5, lists())
		r.pass(10 * time.Second)
		assert.LessOrEqual(t, lists(), 1)
	})
}

func TestStatusThatIsNewerThanTheHintIsNotReadAgain(t *testing.T) {
	inEvented(t, pleg.EventedOptions{Options: pleg.Options{MaxInspections: 1}}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.Set("q", sbx("t", "ready"), ctr("b", "running"))
		r.settled()
		r.Do(func(s *plegtest.State) { s.InspectTakes = 100 * time.Millisecond })
		before := r.Inspections("q")
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(time.Millisecond)
		r.Set("q", sbx("t", "ready"), ctr("b", "exited")) // has to wait for p
		r.pass(time.Millisecond)
		_, err := r.cache.Newer(r.Context(), plegtest.Ref("q"), r.cache.Now())
		require.NoError(t, err)
		r.pass(time.Second)
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[ContainerDied b]"}, r.drain())
		assert.Equal(t, before+1, r.Inspections("q"))
	})
}

// TestStateThatOnlyAWorkerSawBetweenHints: the hint's inspection and the one before
// show the same, but a worker has seen something else in between.
func TestStateThatOnlyAWorkerSawBetweenHints(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.Do(func(s *plegtest.State) {
			s.Stream.Delays = func() []time.Duration { return []time.Duration{100 * time.Millisecond} }
		})
		r.Set("p", sbx("s", "ready"), ctr("b", "running"), ctr("a", "running"))
		_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
		require.NoError(t, err)
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
	})
}

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
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain(), "tight from then on")
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
		assert.Zero(t, lists(), "wide after one reconciling relist")
		assert.Len(t, r.metrics.now().logged, 3, "up, broken, up")
		connected := r.metrics.now().connected
		assert.NoError(t, connected[0])
		assert.ErrorIs(t, connected[1], plegtest.ErrBroken)
		assert.ErrorIs(t, connected[2], runtime.ErrUnavailable)
		assert.NoError(t, connected[len(connected)-1])
		assert.Empty(t, r.metrics.now().missed, "nobody misses what happens without a stream")
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

// TestStreamThatIsNotAnnounced: containerd says nothing before the first event, so
// on a quiet node the relists themselves have to build up trust.
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
		assert.Len(t, slices.DeleteFunc(r.metrics.now().logged, func(s string) bool { return !strings.Contains(s, "had not reported") }), 2)
		require.Len(t, r.Opened(), 1)
		r.pass(time.Second)
		require.Len(t, r.Opened(), 2, "opened anew")
		assert.ErrorIs(t, r.metrics.now().connected[1], pleg.ErrMissedChanges)

		// It is as deaf as before, so relists stay tight.
		lists()
		r.pass(60 * time.Second)
		assert.InDelta(t, 60, lists(), 1)
		for i := range 20 {
			r.Set("p", ctr(fmt.Sprint("a", i), "running"))
			r.pass(2 * time.Second)
			assert.Len(t, r.drain(), 1)
		}
		assert.Greater(t, len(r.Opened()), 5, "probing goes on")
		assert.Less(t, len(r.Opened()), 20)

		// Once it tells something true, it is trusted more and more.
		r.Do(func(s *plegtest.State) { s.Stream.Silent = false })
		r.pass(10 * time.Second)
		r.Set("p", ctr("c", "running"))
		assert.Len(t, r.drain(), 1)
		r.pass(600 * time.Second)
		assert.Equal(t, 300*time.Second, r.period())
	})
}

func TestStreamThatMissesSomePodsIsGivenUp(t *testing.T) {
	inEvented(t, pleg.EventedOptions{MaxMisses: 3}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.settled()
		for i := range 4 {
			require.Len(t, r.Opened(), 1)
			r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
			r.Set("p", ctr(fmt.Sprint(i), "running"))
			r.Do(func(s *plegtest.State) { s.Stream.Silent = false })
			r.Hint(runtime.Hint{Pod: plegtest.Ref("other"), ID: "x"}) // not silent
			r.g.Relist()
			r.pass(1500 * time.Millisecond)
		}
		assert.Equal(t, []int{1, 1, 1, 1}, r.metrics.now().missed)
		require.Len(t, r.Opened(), 2)
	})
}

// TestHungRuntime: while the stream is good nobody lists, so what calls there are
// have to tell that the runtime hangs.
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

func TestFailedInspectionIsTriedAgainSoon(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.pass(time.Minute)
		lists, before := r.counts(), r.Inspections("p")
		r.Do(func(s *plegtest.State) { s.Broken["p"] = true })
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(5500 * time.Millisecond)
		assert.InDelta(t, 6, r.Inspections("p")-before, 1)
		assert.Equal(t, 1, lists(), "to see whether it is the runtime that is ill")
		assert.Empty(t, r.drain())
		r.Do(func(s *plegtest.State) { s.Broken["p"] = false })
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		before = r.Inspections("p")
		r.pass(time.Minute)
		assert.Equal(t, before, r.Inspections("p"))
	})
}

func TestHungPodDelaysNoHints(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("h", ctr("x", "running"))
		r.Set("p", ctr("a", "running"))
		r.settled()
		r.Do(func(s *plegtest.State) { s.Hung["h"] = true })
		lists := r.counts()
		r.Set("h", ctr("x", "exited"))
		for i := range 100 {
			r.Set("p", ctr(fmt.Sprint(i), "running"))
			require.Len(t, r.drain(), 1)
			r.pass(100 * time.Millisecond)
		}
		assert.Zero(t, lists(), "others show that the runtime is well")
		r.Do(func(s *plegtest.State) { clear(s.Hung) })
		r.pass(30 * time.Second)
		assert.Equal(t, []string{"h[ContainerDied x]"}, r.drain())
	})
}

// TestRemovalIsSeenToTheEnd: the last hint comes before the sandbox is gone.
func TestRemovalIsSeenToTheEnd(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.Set("p", sbx("s", "not-ready"), ctr("a", "exited"))
		r.Set("p", sbx("s", "not-ready"))
		r.drain()
		r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
		r.Set("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[SandboxRemoved s]"}, r.drain())
		r.Do(func(s *plegtest.State) { s.Stream.Silent = false })
		r.pass(10 * time.Minute)
		assert.Empty(t, r.metrics.now().missed)
		assert.Zero(t, pleg.Remembered(r.g))
	})
}

func TestEventedStopsInTheMiddleOfAnything(t *testing.T) {
	for _, what := range []string{"stream", "pause", "list", "inspections", "reader"} {
		t.Run(what, func(t *testing.T) {
			inEvented(t, pleg.EventedOptions{}, func(r *rig) {
				r.Set("p", ctr("a", "running"))
				r.Do(func(s *plegtest.State) {
					s.ListHangs = what == "list"
					s.Hung["p"] = what == "inspections"
					if what == "pause" {
						s.Stream.Refuses = runtime.ErrUnavailable
					}
				})
				r.run()
				r.Set("p", ctr("a", "exited"))
				r.pass(1500 * time.Millisecond)
				r.halt()
				_, open := <-r.g.Watch()
				assert.False(t, open)
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.ListTakes = 100 * time.Millisecond })
		r.Set("p", sbx("s", "ready"), sbx("r", "ready"), ctr("a", "running"), ctr("b", "exited"))
		r.Set("q", sbx("t", "not-ready"), ctr("c", "running"))
		began := time.Now()
		r.run()
		r.pass(1100 * time.Millisecond)
		r.Do(func(s *plegtest.State) { s.ListErr = plegtest.ErrInjected })
		r.pass(1500 * time.Millisecond)
		require.Len(t, r.metrics.now().relists, 3)
		after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		assert.Equal(t, []pleg.Relisted{
			{Took: 100 * time.Millisecond, Began: began, Due: after(1100)},
			{Took: 100 * time.Millisecond, Began: after(1100), Interval: 1100 * time.Millisecond, Due: after(2200)},
			{Err: plegtest.ErrInjected, Began: after(2200), Interval: 1100 * time.Millisecond, Due: after(3200)},
		}, r.metrics.now().relists)
		assert.Equal(t, []pleg.Counts{{Pods: 1, Running: 2, Exited: 1}}, r.metrics.now().counts, "nothing has changed")
	})
}

// TestCountsFollowEvents shows that what there is is told when it changes, however
// long it is until the next relist.
func TestCountsFollowEvents(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.run()
		r.pass(10 * time.Second)
		relists := len(r.metrics.now().relists)
		assert.Equal(t, pleg.Counts{Pods: 1, Running: 1}, last(r.metrics.now().counts))
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p")})
		r.pass(time.Second)
		assert.Equal(t, pleg.Counts{Pods: 1, Exited: 1}, last(r.metrics.now().counts))
		r.Set("p", sbx("s", "not-ready"))
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p")})
		r.pass(time.Second)
		assert.Equal(t, pleg.Counts{}, last(r.metrics.now().counts))
		assert.Len(t, r.metrics.now().relists, relists)
		assert.Greater(t, time.Until(last(r.metrics.now().relists).Due), 4*time.Minute)
	})
}

func TestMetricsOfTheStream(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.Stream.Unannounced = true })
		r.run()
		assert.Empty(t, r.metrics.now().connected)
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p"), Age: time.Second}, runtime.Hint{ID: "x"})
		synctest.Wait()
		assert.Equal(t, []error{nil}, r.metrics.now().connected)
		assert.Equal(t, []time.Duration{time.Second, 0}, r.metrics.now().ages)
	})
}

// faulty is a source that breaks its contract.
type faulty struct{ *plegtest.Runtime }

func (faulty) WatchEvents(context.Context, func(), func(runtime.Hint)) error { return nil }

func TestSourceThatEndsWithoutAnError(t *testing.T) {
	inRig(t, func(r *rig) generator {
		return pleg.NewEvented(faulty{r.Runtime}, r.cache, pleg.EventedOptions{Options: r.metrics.options(pleg.Options{})})
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
			inRig(t, func(r *rig) generator {
				return pleg.NewEvented(tc.wrap(lister{r.Runtime}), r.cache, pleg.EventedOptions{Options: r.metrics.options(pleg.Options{})})
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
