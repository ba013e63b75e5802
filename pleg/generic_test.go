package pleg

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// rig is a generator over a world, in virtual time.
type rig struct {
	*testing.T
	*world
	cache *runtime.Cache
	g     *engine
	stop  context.CancelFunc
	// ended is closed when Run has returned.
	ended chan struct{}
}

func inBubble(t *testing.T, opts Options, test func(r *rig)) {
	inRig(t, func(w *world, cache *runtime.Cache) *engine { return NewGeneric(w, cache, opts).engine }, test)
}

func inRig(t *testing.T, build func(*world, *runtime.Cache) *engine, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		cache := runtime.NewCache(w, runtime.CacheOptions{})
		r := &rig{T: t, world: w, cache: cache, g: build(w, cache), ended: make(chan struct{})}
		test(r)
		if r.stop != nil {
			r.halt()
		}
	})
}

// run starts the generator; the first relist is done when it returns.
func (r *rig) run() {
	ctx, stop := context.WithCancel(r.Context())
	r.stop = stop
	go func() {
		defer close(r.ended)
		assert.NoError(r, r.g.Run(ctx))
	}()
	synctest.Wait()
}

func (r *rig) halt() {
	r.stop()
	synctest.Wait()
	select {
	case <-r.ended:
	default:
		r.Error("Run has not returned")
	}
}

// pass lets time pass, and what is to happen then happen.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// take returns what waits for the reader first, or "".
func (r *rig) take() string {
	r.Helper()
	synctest.Wait()
	select {
	case e, ok := <-r.g.Watch():
		require.True(r, ok)
		return fmt.Sprint(e.Pod.UID, words(e.Events))
	default:
		return ""
	}
}

// drain takes all that waits for the reader.
func (r *rig) drain() []string {
	r.Helper()
	all := []string{}
	for s := r.take(); s != ""; s = r.take() {
		all = append(all, s)
	}
	return all
}

func (r *rig) cached(uid types.UID) string {
	status, _ := r.cache.Get(uid)
	return view(status)
}

func TestFirstRelistTellsEverything(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
		r.set("q", ctr("c", "unknown"))
		r.run()
		assert.ElementsMatch(t, []string{
			"p[SandboxStarted s ContainerStarted a ContainerDied b]",
			"q[ContainerChanged c]",
		}, r.drain())
		assert.Equal(t, "a=running b=exited s=ready", r.cached("p"))
		assert.NoError(t, r.g.Healthy())

		r.set("p", sbx("s", "ready"), ctr("d", "running"), ctr("a", "exited"), ctr("b", "exited"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerStarted d ContainerDied a]"}, r.drain(), "died and started again between two relists")
		assert.Equal(t, "a=exited b=exited d=running s=ready", r.cached("p"))

		r.pass(10 * time.Second)
		assert.Equal(t, 12, r.listCalls())
		assert.Equal(t, 2, r.inspections("p"))
		assert.Equal(t, 1, r.inspections("q"), "an idle pod is not inspected")
	})
}

func TestSlowReaderGetsOneItemForEachPod(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", ctr("0", "running"))
		r.set("q", ctr("x", "running"))
		r.run()
		for i := range 100 {
			r.set("p", ctr(fmt.Sprint(i+1), "running"), ctr(fmt.Sprint(i), "exited"))
			r.pass(time.Second)
		}
		items := r.drain()
		require.Len(t, items, 2)
		for i := range 100 {
			assert.Contains(t, items[0]+items[1], fmt.Sprintf("ContainerDied %d ", i))
		}
		assert.Contains(t, items[0]+items[1], "q[ContainerStarted x]")
		assert.Empty(t, r.take())
	})
}

func TestHungPodDelaysNobody(t *testing.T) {
	inBubble(t, Options{MaxInspections: 2}, func(r *rig) {
		for _, uid := range []types.UID{"h1", "h2", "h3", "h4"} {
			r.hung[uid] = true
			r.set(uid, ctr(string(uid), "running"))
		}
		r.set("p", ctr("a", "running"))
		r.set("q", ctr("b", "running"))
		r.run()
		r.pass(2 * time.Second) // h1 and h2 lose their places after one second, h3 and h4 after two
		assert.ElementsMatch(t, []string{"p[ContainerStarted a]", "q[ContainerStarted b]"}, r.drain())

		// Relists go on, and from now on nobody waits.
		for i := range 20 {
			r.set("p", ctr(fmt.Sprint(i), "running"))
			r.pass(time.Second)
			assert.Contains(t, r.take(), fmt.Sprintf("ContainerStarted %d ", i))
		}
		assert.Equal(t, 1, r.inspections("h1"))
		assert.NoError(t, r.g.Healthy())

		// Its deadline ends the inspection, and it is tried again; what has happened
		// in the meantime is not lost.
		r.set("h1", ctr("h1b", "running"))
		r.do(func() { clear(r.hung) })
		r.pass(15 * time.Second)
		assert.ElementsMatch(t, []string{
			"h1[ContainerStarted h1 ContainerStarted h1b ContainerDied h1 ContainerRemoved h1]",
			"h2[ContainerStarted h2]", "h3[ContainerStarted h3]", "h4[ContainerStarted h4]",
		}, r.drain())
	})
}

func TestStopWhileEverythingHangs(t *testing.T) {
	for _, what := range []string{"list", "inspections", "reader"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.do(func() {
					r.listHangs = what == "list"
					r.hung["p"] = what == "inspections"
				})
				r.set("p", ctr("a", "running"))
				r.run()
				r.pass(1500 * time.Millisecond)
				r.halt()
				_, open := <-r.g.Watch()
				assert.False(t, open, "the channel ends with Run")
				assert.ErrorIs(t, r.g.Healthy(), errNotRunning)
			})
		})
	}
}

func TestRunRunsOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		assert.Error(t, r.g.Healthy(), "not before Run")
		r.run()
		assert.ErrorIs(t, r.g.Run(r.Context()), runtime.ErrAlreadyRunning)
		assert.NoError(t, r.g.Healthy())
		r.halt()
		assert.ErrorIs(t, r.g.Run(r.Context()), runtime.ErrAlreadyRunning)
	})
}

func TestInspectionsSideBySide(t *testing.T) {
	inBubble(t, Options{MaxInspections: 4}, func(r *rig) {
		r.statusTakes = 100 * time.Millisecond
		for i := range 20 {
			r.set(types.UID(fmt.Sprint(i)), ctr(fmt.Sprint("c", i), "running"))
		}
		r.run()
		r.pass(499 * time.Millisecond)
		assert.Len(t, r.drain(), 16)
		r.pass(time.Millisecond)
		assert.Len(t, r.drain(), 4)
		assert.Equal(t, 4, r.most)
	})
}

func TestFailedInspectionIsTriedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.run()
		assert.Len(t, r.drain(), 1)

		r.do(func() { r.broken["p"] = true })
		r.set("p", ctr("b", "running"), ctr("a", "exited"))
		r.pass(time.Second)
		r.set("p", ctr("b", "exited"), ctr("a", "exited"))
		r.pass(time.Second)
		r.set("p", ctr("c", "running"))
		r.pass(time.Second)
		r.pass(time.Second)
		assert.Empty(t, r.drain())
		assert.Equal(t, "a=running", r.cached("p"), "an error replaces no status")
		assert.Equal(t, 5, r.inspections("p"))
		assert.NoError(t, r.g.Healthy())

		r.do(func() { r.broken["p"] = false })
		r.pass(time.Second)
		assert.Equal(t, []string{
			"p[ContainerStarted b ContainerDied a ContainerDied b ContainerStarted c ContainerRemoved b ContainerRemoved a]",
		}, r.drain())
		assert.Equal(t, "c=running", r.cached("p"))
	})
}

func TestPodGoneWhileItsInspectionFails(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.broken["p"] = true
		r.set("p", ctr("a", "exited"))
		r.run()
		assert.Empty(t, r.drain())
		r.set("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a ContainerRemoved a]"}, r.drain())
		assert.Empty(t, r.cached("p"))
		assert.Empty(t, r.cache.Seen(""))
		assert.Empty(t, r.g.records.pods)
	})
}

func TestHealthIsTheProgressOfTheListCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(r *rig, on bool)
		cause error
	}{
		{"fails", func(r *rig, on bool) {
			r.listErr = nil
			if on {
				r.listErr = errInjected
			}
		}, errInjected},
		{"hangs", func(r *rig, on bool) { r.listHangs = on }, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.do(func() { tc.fault(r, true) })
				r.run()
				require.Error(t, r.g.Healthy(), "nothing was heard of the runtime yet")
				r.do(func() { tc.fault(r, false) })
				r.pass(2*time.Minute + 2*time.Second)
				require.NoError(t, r.g.Healthy())

				r.set("p", ctr("a", "running"))
				r.pass(time.Second)
				assert.Len(t, r.drain(), 1)

				r.do(func() { tc.fault(r, true) })
				r.set("p", ctr("a", "exited"))
				r.pass(3 * time.Minute)
				require.NoError(t, r.g.Healthy(), "three minutes are not over the threshold")
				r.pass(time.Millisecond)
				err := r.g.Healthy()
				require.ErrorIs(t, err, tc.cause)
				require.ErrorContains(t, err, "threshold is 3m0s")

				r.do(func() { tc.fault(r, false) })
				r.pass(2*time.Minute + 2*time.Second)
				require.NoError(t, r.g.Healthy())
				assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
			})
		})
	}
}

func TestRelistOnRequest(t *testing.T) {
	inBubble(t, Options{RelistPeriod: time.Minute}, func(r *rig) {
		r.g.Relist() // served by the first relist
		r.run()
		require.Equal(t, 1, r.listCalls())

		r.do(func() { r.listTakes = 10 * time.Millisecond })
		r.set("p", ctr("a", "running"))
		r.g.Relist()
		r.g.Relist()
		r.pass(5 * time.Millisecond)
		r.g.Relist() // this one is under way, so it is another one that serves
		r.g.Relist()
		r.pass(5 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
		r.pass(time.Second)
		assert.Equal(t, 3, r.listCalls())

		r.pass(58*time.Second + 990*time.Millisecond)
		assert.Equal(t, 3, r.listCalls())
		r.pass(30 * time.Millisecond)
		assert.Equal(t, 4, r.listCalls(), "the period begins anew")
	})
}

func TestPodThatAWorkerHasReadIsNotInspectedAgain(t *testing.T) {
	inBubble(t, Options{MaxInspections: 1}, func(r *rig) {
		r.statusTakes = 100 * time.Millisecond
		r.set("a", ctr("1", "running"))
		r.set("b", ctr("2", "running"))
		r.run() // b has to wait for a
		status, err := r.cache.Newer(r.Context(), refOf("b"), r.cache.Now())
		require.NoError(t, err)
		require.Equal(t, "2=running", view(status))
		r.pass(500 * time.Millisecond)
		assert.Len(t, r.drain(), 2)
		assert.Equal(t, 1, r.inspections("b"))
	})
}

// TestStatusReadDuringTheListCall: a worker reads a pod while the list call is
// under way, then a container dies, and the list shows it. The worker's status
// is younger than the beginning of the list call, yet it does not know.
func TestStatusReadDuringTheListCall(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.run()
		assert.Len(t, r.drain(), 1)
		r.do(func() { r.listTakes, r.late = 100*time.Millisecond, true })
		r.pass(1050 * time.Millisecond)

		_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
		require.NoError(t, err)
		r.set("p", ctr("a", "exited"))
		r.pass(100 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Equal(t, "a=exited", r.cached("p"))
	})
}

// TestPodMadeDuringTheListCall: the list does not show the pod any more, but a
// worker has made it again and read it before the list call returned.
func TestPodMadeDuringTheListCall(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", ctr("a", "exited"))
		r.run()
		assert.Len(t, r.drain(), 1)
		r.set("p")
		r.do(func() { r.listTakes = 100 * time.Millisecond })
		r.pass(1050 * time.Millisecond)

		r.set("p", ctr("b", "running"))
		_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
		require.NoError(t, err)
		r.pass(100 * time.Millisecond)
		assert.Equal(t, "b=running", r.cached("p"), "not forgotten")
		assert.Equal(t, []string{"p[ContainerRemoved a ContainerStarted b]"}, r.drain())
		r.pass(1100 * time.Millisecond)
		assert.Empty(t, r.drain())
	})
}

// TestStateThatOnlyAWorkerSaw: the lists before and after show the same, but the
// cache must not keep what passed between them.
func TestStateThatOnlyAWorkerSaw(t *testing.T) {
	for _, tc := range []struct {
		name   string
		listed bool // a relist saw the pod before
		during bool // the worker reads while a list call is under way
	}{
		{"between two relists", true, false},
		{"during a list call", true, true},
		{"of a pod that no relist saw", false, false},
		{"of a pod that no relist saw, during a list call", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var before []any
				if tc.listed {
					before = []any{sbx("s", "ready"), ctr("a", "running")}
				}
				r.set("p", before...)
				r.run()
				r.drain()
				r.pass(1500 * time.Millisecond)
				if tc.during {
					r.do(func() { r.listTakes, r.late = 100*time.Millisecond, true })
					r.pass(550 * time.Millisecond)
				}
				r.set("p", append(before, ctr("b", "running"))...)
				_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
				require.NoError(t, err)
				require.Contains(t, r.cached("p"), "b=running")
				r.set("p", before...)
				r.pass(1500 * time.Millisecond)
				assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
				assert.NotContains(t, r.cached("p"), "b=running")
			})
		})
	}
}

// TestStateThatTheCacheHasLostAgain: a reader got a state that passed between two
// relists, and by the next list the cache agrees with the list again, so nothing
// but the memory of the read tells that the reader knows something else.
func TestStateThatTheCacheHasLostAgain(t *testing.T) {
	for _, listed := range []bool{true, false} {
		for _, by := range []string{"a read", "Forget"} {
			t.Run(fmt.Sprintf("listed=%t/by %s", listed, by), func(t *testing.T) {
				inBubble(t, Options{}, func(r *rig) {
					var before []any
					if listed {
						before = []any{sbx("s", "ready"), ctr("a", "running")}
					}
					r.set("p", before...)
					r.run()
					r.drain()
					r.pass(1500 * time.Millisecond)

					r.set("p", append(before, ctr("b", "running"))...)
					got, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
					require.NoError(t, err)
					require.Contains(t, view(got), "b=running")
					r.set("p", before...)
					if by == "Forget" {
						r.cache.ForgetUntil("p", r.cache.Now())
					} else {
						_, err = r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
						require.NoError(t, err)
					}
					require.NotContains(t, r.cached("p"), "b=running")

					r.pass(time.Second)
					assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
					r.pass(10 * time.Second)
					assert.Empty(t, r.drain(), "told once")
				})
			})
		}
	}
}

func TestPodIsDeliveredWhileListCallIsUnderWay(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.set("p", ctr("a", "running"))
		r.run()
		r.do(func() { r.listHangs = true })
		r.pass(time.Minute)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
	})
}

func TestCauseOfRunsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("any"))
		g := NewGeneric(w, runtime.NewCache(w, runtime.CacheOptions{}), Options{})
		assert.NoError(t, g.Run(ctx))
	})
}
