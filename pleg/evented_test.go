package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func inEvented(t *testing.T, opts EventedOptions, test func(r *rig)) {
	inRig(t, func(w *world, cache *runtime.Cache) *engine {
		w.events.announces = true
		return NewEvented(w, cache, opts).engine
	}, test)
}

// settled runs the generator until the stream is trusted, with what was there told.
func (r *rig) settled() {
	r.run()
	require.Equal(r, 300*time.Second, r.period())
	r.drain()
}

// period returns the time between relists. The world's lock orders it against what
// the generator does next.
func (r *rig) period() (d time.Duration) {
	r.do(func() { d = r.g.pace.period })
	return d
}

// counts returns a function that returns how many list calls there were since it was
// last called.
func (r *rig) counts() func() int {
	last := r.listCalls()
	return func() int {
		now := r.listCalls()
		defer func() { last = now }()
		return now - last
	}
}

// gauge is a [Metrics], and a place for what is logged.
type gauge struct {
	mu sync.Mutex
	told
}

type told struct {
	relists   []Relisted
	counts    []Counts
	connected []error
	ages      []time.Duration
	missed    []int
	logged    []string
}

func (g *gauge) Relisted(r Relisted) { g.note(func(t *told) { t.relists = append(t.relists, r) }) }
func (g *gauge) Counted(c Counts)    { g.note(func(t *told) { t.counts = append(t.counts, c) }) }
func (g *gauge) Connected(err error) {
	g.note(func(t *told) { t.connected = append(t.connected, err) })
}
func (g *gauge) Hinted(age time.Duration) { g.note(func(t *told) { t.ages = append(t.ages, age) }) }
func (g *gauge) Missed(pods int)          { g.note(func(t *told) { t.missed = append(t.missed, pods) }) }

func (g *gauge) log(_, line string) { g.note(func(t *told) { t.logged = append(t.logged, line) }) }

func (g *gauge) note(what func(*told)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	what(&g.told)
}

// now returns what it was told until now.
func (g *gauge) now() (t told) {
	g.note(func(all *told) {
		t = told{slices.Clone(all.relists), slices.Clone(all.counts), slices.Clone(all.connected), slices.Clone(all.ages), slices.Clone(all.missed), slices.Clone(all.logged)}
	})
	return t
}

func (g *gauge) opts() Options {
	return Options{Metrics: g, Logger: funcr.New(g.log, funcr.Options{})}
}

func TestHintIsOneReadAndNoWaiting(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.set("q", sbx("t", "ready"), ctr("x", "running"))
		r.settled()
		lists := r.counts()

		r.set("p", sbx("s", "ready"), ctr("b", "running"), ctr("a", "exited"))
		assert.Equal(t, []string{"p[ContainerStarted b ContainerDied a]"}, r.drain(), "with no time in between")
		assert.Equal(t, "a=exited b=running s=ready", r.cached("p"))
		assert.Equal(t, 1, r.inspections("q"))

		r.pass(299 * time.Second)
		assert.Zero(t, lists())
		r.pass(2 * time.Second)
		assert.Equal(t, 1, lists())
		assert.Empty(t, r.drain(), "told once")
		assert.LessOrEqual(t, r.inspections("p"), 3, "two hints cost two reads at most")
		assert.Equal(t, 1, r.inspections("q"))
	})
}

func TestHintsDuringAnInspectionCostOneMore(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"))
		r.settled()
		r.do(func() { r.statusTakes = 100 * time.Millisecond })
		before := r.inspections("p")
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.pass(10 * time.Millisecond)
		for range 50 {
			r.hint(runtime.Hint{Pod: refOf("p"), ID: "a"})
			r.pass(time.Millisecond)
		}
		r.pass(time.Second)
		assert.Equal(t, before+2, r.inspections("p"))
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
	})
}

// TestExitIsToldOnce: whichever comes first, the hint or the relist.
func TestExitIsToldOnce(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Millisecond} {
		for _, takes := range []time.Duration{0, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("hint after %s, list takes %s", late, takes), func(t *testing.T) {
				metrics := &gauge{}
				inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
					r.set("p", sbx("s", "ready"), ctr("a", "running"))
					r.settled()
					r.do(func() {
						r.listTakes, r.statusTakes = takes, 5*time.Millisecond
						r.events.fate = func() []time.Duration { return []time.Duration{late} }
					})
					for _, state := range []runtime.ContainerState{"running", "exited"} {
						r.g.Relist() // begins before the change
						r.set("p", sbx("s", "ready"), ctr("b", state), ctr("a", "exited"))
						r.g.Relist()
						r.pass(2 * time.Second)
					}
					assert.Equal(t, []string{"p[ContainerStarted b ContainerDied a ContainerDied b]"}, r.drain())
					assert.Empty(t, metrics.now().missed)
				})
			})
		}
	}
}

func TestExitThatIsGoneAtTheNextReadIsTold(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.do(func() { r.events.fate = func() []time.Duration { return []time.Duration{100 * time.Millisecond} } })
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.set("p", sbx("s", "ready"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a ContainerRemoved a]"}, r.drain())
	})
}

// TestBacklogOfGonePods: containerd replays minutes of events to who subscribes.
func TestBacklogOfGonePods(t *testing.T) {
	inEvented(t, EventedOptions{Options: Options{MaxInspections: 8}}, func(r *rig) {
		r.statusTakes = 2 * time.Millisecond
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		for i := range 300 {
			ref := refOf(types.UID(fmt.Sprint("gone", i)))
			for range 4 {
				r.events.backlog = append(r.events.backlog, runtime.Hint{Pod: ref, ID: fmt.Sprint("c", i)}, runtime.Hint{Pod: refOf("p"), ID: "old"})
			}
		}
		r.run()
		r.pass(10 * time.Second)
		assert.Equal(t, []string{"p[SandboxStarted s ContainerStarted a]"}, r.drain())
		for i := range 300 {
			assert.LessOrEqual(t, r.inspections(types.UID(fmt.Sprint("gone", i))), 4, "a read for a hint")
		}
		assert.LessOrEqual(t, r.most, 8)
		assert.Len(t, r.g.records.pods, 1)
		assert.Len(t, r.cache.Seen(""), 0, "nor does the cache remember them")
		assert.Equal(t, 300*time.Second, r.period())
	})
}

func TestHintsWithoutAPod(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.set("q", sbx("t", "ready"), ctr("b", "running"))
		r.settled()
		lists := r.counts()
		r.do(func() { r.events.bare = true })

		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.set("q", sbx("t", "not-ready"), ctr("b", "running"))
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[SandboxDied t]"}, r.drain())
		assert.Zero(t, lists())

		// What nobody knows is found by a relist, once a second at most.
		r.pass(time.Minute)
		lists()
		r.set("r", sbx("u", "ready"), ctr("c", "running"))
		assert.Equal(t, []string{"r[SandboxStarted u ContainerStarted c]"}, r.drain())
		assert.Equal(t, 1, lists())
		for range 50 {
			r.hint(runtime.Hint{ID: "unknown"}, runtime.Hint{})
			r.pass(100 * time.Millisecond)
		}
		assert.Equal(t, 5, lists())
		r.pass(10 * time.Second)
		assert.LessOrEqual(t, lists(), 1)
	})
}

func TestStatusThatIsNewerThanTheHintIsNotReadAgain(t *testing.T) {
	inEvented(t, EventedOptions{Options: Options{MaxInspections: 1}}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.set("q", sbx("t", "ready"), ctr("b", "running"))
		r.settled()
		r.do(func() { r.statusTakes = 100 * time.Millisecond })
		before := r.inspections("q")
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(time.Millisecond)
		r.set("q", sbx("t", "ready"), ctr("b", "exited")) // has to wait for p
		r.pass(time.Millisecond)
		_, err := r.cache.Newer(r.Context(), refOf("q"), r.cache.Now())
		require.NoError(t, err)
		r.pass(time.Second)
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[ContainerDied b]"}, r.drain())
		assert.Equal(t, before+1, r.inspections("q"))
	})
}

// TestStateThatOnlyAWorkerSawBetweenHints: the hint's inspection and the one before
// show the same, but a worker has seen something else in between.
func TestStateThatOnlyAWorkerSawBetweenHints(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.do(func() { r.events.fate = func() []time.Duration { return []time.Duration{100 * time.Millisecond} } })
		r.set("p", sbx("s", "ready"), ctr("b", "running"), ctr("a", "running"))
		_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
		require.NoError(t, err)
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
	})
}

func TestRuntimeWithoutEventStream(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.events.refuses = errNoStream
		r.set("p", ctr("a", "running"))
		r.run()
		r.pass(10 * time.Minute)
		assert.Equal(t, 601, r.listCalls(), "generic for good")
		assert.Len(t, r.attempts(), 1)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
		assert.NoError(t, r.g.Healthy())
		logged := metrics.now().logged
		require.Len(t, logged, 1)
		assert.Contains(t, logged[0], "has no event stream")
		require.Len(t, metrics.now().connected, 1)
		assert.ErrorIs(t, metrics.now().connected[0], errors.ErrUnsupported)
	})
}

func TestBrokenStream(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.settled()
		r.pass(time.Minute)
		lists, began := r.counts(), time.Now()

		r.breakStream(runtime.ErrUnavailable)
		synctest.Wait()
		assert.Equal(t, 1, lists(), "one relist at once")
		r.set("p", ctr("a", "exited"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain(), "tight from then on")
		r.pass(59 * time.Second)
		assert.Equal(t, 60, lists())

		// Pauses double from 100 ms to 5 s, and are never the same.
		attempts := r.attempts()[1:]
		pause := 0.1
		for i, at := range attempts[1:] {
			pause = min(2*pause, 4)
			took := at.Sub(attempts[i]).Seconds()
			assert.GreaterOrEqual(t, took, pause-0.001)
			assert.LessOrEqual(t, took, 1.25*pause+0.001)
		}
		assert.Greater(t, len(attempts), 60/5)
		assert.InDelta(t, 0.1, attempts[0].Sub(began).Seconds(), 0.03)

		r.do(func() { r.events.refuses = nil })
		r.pass(10 * time.Second)
		lists()
		r.set("p", ctr("b", "running"))
		assert.Len(t, r.drain(), 1)
		r.pass(280 * time.Second)
		assert.Zero(t, lists(), "wide after one reconciling relist")
		assert.Len(t, metrics.now().logged, 3, "up, broken, up")
		connected := metrics.now().connected
		assert.NoError(t, connected[0])
		assert.ErrorIs(t, connected[1], errBroken)
		assert.ErrorIs(t, connected[2], runtime.ErrUnavailable)
		assert.NoError(t, connected[len(connected)-1])
		assert.Empty(t, metrics.now().missed, "nobody misses what happens without a stream")
	})
}

// TestChangeWhileTheStreamIsOpenedAnew: what happens between the last relist and the
// new stream is found by the relist after it.
func TestChangeWhileTheStreamIsOpenedAnew(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.settled()
		r.breakStream(nil)
		r.pass(50 * time.Millisecond)
		r.set("p", ctr("a", "exited"))
		r.pass(100 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
	})
}

// TestStreamThatIsNotAnnounced: containerd says nothing before the first event, so
// on a quiet node the relists themselves have to build up trust.
func TestStreamThatIsNotAnnounced(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.events.announces = false
		r.set("p", ctr("a", "running"))
		r.run()
		began := time.Now()
		var lists []int // the second of each
		r.do(func() {
			r.afterLists = func([]*runtime.Pod) { lists = append(lists, int(time.Since(began).Seconds())) }
		})
		r.pass(1500 * time.Second)
		var gaps []int
		first := 0
		r.do(func() {
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
		r.set("p", ctr("a", "exited"))
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Equal(t, 1, count())
		r.pass(299 * time.Second)
		assert.Zero(t, count())
	})
}

func TestSilentStreamIsGivenUp(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.set("q", ctr("b", "running"))
		r.settled()
		r.do(func() { r.events.deaf = true })
		lists := r.counts()
		r.set("p", ctr("a", "exited"))
		r.set("q", ctr("b", "exited"))
		r.pass(301 * time.Second)
		assert.ElementsMatch(t, []string{"p[ContainerDied a]", "q[ContainerDied b]"}, r.drain())
		assert.Equal(t, []int{2}, metrics.now().missed)
		assert.Len(t, slices.DeleteFunc(metrics.now().logged, func(s string) bool { return !strings.Contains(s, "had not told") }), 2)
		require.Len(t, r.attempts(), 1)
		r.pass(time.Second)
		require.Len(t, r.attempts(), 2, "opened anew")
		assert.ErrorIs(t, metrics.now().connected[1], errDeaf)

		// It is as deaf as before, so relists stay tight.
		lists()
		r.pass(60 * time.Second)
		assert.InDelta(t, 60, lists(), 1)
		for i := range 20 {
			r.set("p", ctr(fmt.Sprint("a", i), "running"))
			r.pass(2 * time.Second)
			assert.Len(t, r.drain(), 1)
		}
		assert.Greater(t, len(r.attempts()), 5, "probing goes on")
		assert.Less(t, len(r.attempts()), 20)

		// Once it tells something true, it is trusted more and more.
		r.do(func() { r.events.deaf = false })
		r.pass(10 * time.Second)
		r.set("p", ctr("c", "running"))
		assert.Len(t, r.drain(), 1)
		r.pass(600 * time.Second)
		assert.Equal(t, 300*time.Second, r.period())
	})
}

func TestStreamThatMissesSomePodsIsGivenUp(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{MaxMisses: 3, Options: metrics.opts()}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.settled()
		for i := range 4 {
			require.Len(t, r.attempts(), 1)
			r.do(func() { r.events.deaf = true })
			r.set("p", ctr(fmt.Sprint(i), "running"))
			r.do(func() { r.events.deaf = false })
			r.hint(runtime.Hint{Pod: refOf("other"), ID: "x"}) // not silent
			r.g.Relist()
			r.pass(1500 * time.Millisecond)
		}
		assert.Equal(t, []int{1, 1, 1, 1}, metrics.now().missed)
		require.Len(t, r.attempts(), 2)
	})
}

// TestHungRuntime: while the stream is good nobody lists, so what calls there are
// have to tell that the runtime hangs.
func TestHungRuntime(t *testing.T) {
	for _, tc := range []struct {
		name   string
		notice func(r *rig)
	}{
		{"a hint", func(r *rig) { r.set("p", ctr("a", "exited")) }},
		{"the stream breaks", func(r *rig) { r.breakStream(runtime.ErrUnavailable) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEvented(t, EventedOptions{}, func(r *rig) {
				r.set("p", ctr("a", "running"))
				r.settled()
				r.pass(30 * time.Second)
				r.do(func() { r.listHangs, r.hung["p"] = true, true })
				tc.notice(r)
				r.pass(3*time.Minute - 2*time.Second)
				require.NoError(t, r.g.Healthy())
				r.pass(3 * time.Second)
				require.ErrorContains(t, r.g.Healthy(), "threshold is ")

				r.do(func() { r.listHangs = false; clear(r.hung); r.events.refuses = nil })
				r.set("p", ctr("a", "exited"), ctr("b", "running"))
				r.pass(2*time.Minute + 10*time.Second)
				require.NoError(t, r.g.Healthy())
				assert.Len(t, r.drain(), 1)
			})
		})
	}
}

func TestWideRelistsAreHealthy(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.settled()
		for range 20 {
			r.pass(time.Minute)
			require.NoError(t, r.g.Healthy())
		}
		r.do(func() { r.listErr = errInjected })
		r.pass(5 * time.Minute)
		require.NoError(t, r.g.Healthy())
		r.pass(3 * time.Minute)
		require.ErrorIs(t, r.g.Healthy(), errInjected)
	})
}

func TestFailedInspectionIsTriedAgainSoon(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.pass(time.Minute)
		lists, before := r.counts(), r.inspections("p")
		r.do(func() { r.broken["p"] = true })
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(5500 * time.Millisecond)
		assert.InDelta(t, 6, r.inspections("p")-before, 1)
		assert.Equal(t, 1, lists(), "to see whether it is the runtime that is ill")
		assert.Empty(t, r.drain())
		r.do(func() { r.broken["p"] = false })
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		before = r.inspections("p")
		r.pass(time.Minute)
		assert.Equal(t, before, r.inspections("p"))
	})
}

func TestHungPodDelaysNoHints(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("h", ctr("x", "running"))
		r.set("p", ctr("a", "running"))
		r.settled()
		r.do(func() { r.hung["h"] = true })
		lists := r.counts()
		r.set("h", ctr("x", "exited"))
		for i := range 100 {
			r.set("p", ctr(fmt.Sprint(i), "running"))
			require.Len(t, r.drain(), 1)
			r.pass(100 * time.Millisecond)
		}
		assert.Zero(t, lists(), "others show that the runtime is well")
		r.do(func() { clear(r.hung) })
		r.pass(30 * time.Second)
		assert.Equal(t, []string{"h[ContainerDied x]"}, r.drain())
	})
}

// TestRemovalIsSeenToTheEnd: the last hint comes before the sandbox is gone.
func TestRemovalIsSeenToTheEnd(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.set("p", sbx("s", "not-ready"), ctr("a", "exited"))
		r.set("p", sbx("s", "not-ready"))
		r.drain()
		r.do(func() { r.events.deaf = true })
		r.set("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[SandboxRemoved s]"}, r.drain())
		r.do(func() { r.events.deaf = false })
		r.pass(10 * time.Minute)
		assert.Empty(t, metrics.now().missed)
		assert.Empty(t, r.g.records.pods)
	})
}

func TestEventedStopsInTheMiddleOfAnything(t *testing.T) {
	for _, what := range []string{"stream", "pause", "list", "inspections", "reader"} {
		t.Run(what, func(t *testing.T) {
			inEvented(t, EventedOptions{}, func(r *rig) {
				r.set("p", ctr("a", "running"))
				r.do(func() {
					r.listHangs = what == "list"
					r.hung["p"] = what == "inspections"
					if what == "pause" {
						r.events.refuses = runtime.ErrUnavailable
					}
				})
				r.run()
				r.set("p", ctr("a", "exited"))
				r.pass(1500 * time.Millisecond)
				r.halt()
				_, open := <-r.g.Watch()
				assert.False(t, open)
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	metrics := &gauge{}
	inBubble(t, Options{Metrics: metrics}, func(r *rig) {
		r.listTakes = 100 * time.Millisecond
		r.set("p", sbx("s", "ready"), sbx("r", "ready"), ctr("a", "running"), ctr("b", "exited"))
		r.set("q", sbx("t", "not-ready"), ctr("c", "running"))
		began := time.Now()
		r.run()
		r.pass(1100 * time.Millisecond)
		r.do(func() { r.listErr = errInjected })
		r.pass(1500 * time.Millisecond)
		require.Len(t, metrics.now().relists, 3)
		after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		assert.Equal(t, []Relisted{
			{Took: 100 * time.Millisecond, Began: began, Due: after(1100)},
			{Took: 100 * time.Millisecond, Began: after(1100), Interval: 1100 * time.Millisecond, Due: after(2200)},
			{Err: errInjected, Began: after(2200), Interval: 1100 * time.Millisecond, Due: after(3200)},
		}, metrics.now().relists)
		assert.Equal(t, []Counts{{Pods: 1, Running: 2, Exited: 1}}, metrics.now().counts, "nothing has changed")
	})
}

// TestCountsFollowEvents shows that what there is is told when it changes, however
// long it is until the next relist.
func TestCountsFollowEvents(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.run()
		r.pass(10 * time.Second)
		relists := len(metrics.now().relists)
		assert.Equal(t, Counts{Pods: 1, Running: 1}, last(metrics.now().counts))
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.hint(runtime.Hint{Pod: refOf("p")})
		r.pass(time.Second)
		assert.Equal(t, Counts{Pods: 1, Exited: 1}, last(metrics.now().counts))
		r.set("p", sbx("s", "not-ready"))
		r.hint(runtime.Hint{Pod: refOf("p")})
		r.pass(time.Second)
		assert.Equal(t, Counts{}, last(metrics.now().counts))
		assert.Len(t, metrics.now().relists, relists)
		assert.Greater(t, time.Until(last(metrics.now().relists).Due), 4*time.Minute)
	})
}

func last[T any](s []T) T { return s[len(s)-1] }

func TestMetricsOfTheStream(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: metrics.opts()}, func(r *rig) {
		r.events.announces = false
		r.run()
		assert.Empty(t, metrics.now().connected)
		r.hint(runtime.Hint{Pod: refOf("p"), Age: time.Second}, runtime.Hint{ID: "x"})
		synctest.Wait()
		assert.Equal(t, []error{nil}, metrics.now().connected)
		assert.Equal(t, []time.Duration{time.Second, 0}, metrics.now().ages)
	})
}

func TestStrayHintsDoNotGrow(t *testing.T) {
	var n news
	for i := range 10 * maxStrays {
		n.hint(runtime.Hint{ID: fmt.Sprint(i)}, runtime.Mark(i))
	}
	assert.Len(t, n.strays, maxStrays)
	assert.True(t, n.lost)
}

// faulty is a source that breaks its contract.
type faulty struct{ *world }

func (faulty) WatchEvents(context.Context, func(), func(runtime.Hint)) error { return nil }

func TestSourceThatEndsWithoutAnError(t *testing.T) {
	metrics := &gauge{}
	inRig(t, func(w *world, cache *runtime.Cache) *engine {
		return NewEvented(faulty{w}, cache, EventedOptions{Options: metrics.opts()}).engine
	}, func(r *rig) {
		r.run()
		r.pass(time.Second)
		require.NotEmpty(t, metrics.now().connected)
		assert.ErrorIs(t, metrics.now().connected[0], errEnded)
		assert.Less(t, len(metrics.now().connected), 6)
	})
}
