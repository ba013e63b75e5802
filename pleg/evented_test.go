package pleg_test

import (
	"fmt"
	"testing"
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
		assert.Empty(t, r.drain(), "reported once")
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

// TestExitIsReportedOnce: whichever comes first, the hint or the relist.
func TestExitIsReportedOnce(t *testing.T) {
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

func TestExitThatIsGoneAtTheNextReadIsReported(t *testing.T) {
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

// TestBacklogOfGonePods: containerd replays minutes of events to a new subscriber.
func TestBacklogOfGonePods(t *testing.T) {
	inEvented(t, pleg.EventedOptions{Options: pleg.Options{MaxInspections: 8}}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.InspectTakes = 2 * time.Millisecond })
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		for i := range 300 {
			ref := plegtest.Ref(types.UID(fmt.Sprint("gone", i)))
			for range 4 {
				r.Do(func(s *plegtest.State) {
					s.Stream.Backlog = append(s.Stream.Backlog, runtime.Hint{Pod: ref, ID: fmt.Sprint("c", i)},
						runtime.Hint{Pod: plegtest.Ref("p"), ID: "old"})
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

		// A relist finds what no known pod matches, once a second at most.
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
