package pleg_test

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

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestFirstRelistReportsEverything(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
		r.Set("q", ctr("c", "unknown"))
		r.run()
		assert.ElementsMatch(t, []string{
			"p[SandboxStarted s ContainerStarted a ContainerDied b]",
			"q[ContainerChanged c]",
		}, r.drain())
		assert.Equal(t, "a=running b=exited s=ready", r.cached("p"))
		assert.NoError(t, r.g.Healthy())

		r.Set("p", sbx("s", "ready"), ctr("d", "running"), ctr("a", "exited"), ctr("b", "exited"))
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerStarted d ContainerDied a]"}, r.drain(),
			"died and started again between two relists")
		assert.Equal(t, "a=exited b=exited d=running s=ready", r.cached("p"))

		r.pass(10 * time.Second)
		assert.Equal(t, 12, r.Lists())
		assert.Equal(t, 2, r.Inspections("p"))
		assert.Equal(t, 1, r.Inspections("q"), "an idle pod is not inspected")
	})
}

func TestSlowReaderGetsOneItemForEachPod(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", ctr("0", "running"))
		r.Set("q", ctr("x", "running"))
		r.run()
		for i := range 100 {
			r.Set("p", ctr(fmt.Sprint(i+1), "running"), ctr(fmt.Sprint(i), "exited"))
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

func TestHungPodDelaysNoOthers(t *testing.T) {
	inGeneric(t, pleg.Options{MaxInspections: 2}, func(r *rig) {
		for _, uid := range []types.UID{"h1", "h2", "h3", "h4"} {
			r.Do(func(s *plegtest.State) { s.Hung[uid] = true })
			r.Set(uid, ctr(string(uid), "running"))
		}
		r.Set("p", ctr("a", "running"))
		r.Set("q", ctr("b", "running"))
		r.run()
		r.pass(2 * time.Second) // h1 and h2 lose their places after one second, h3 and h4 after two
		assert.ElementsMatch(t, []string{"p[ContainerStarted a]", "q[ContainerStarted b]"}, r.drain())

		// Relists go on, and from now on no inspection waits.
		for i := range 20 {
			r.Set("p", ctr(fmt.Sprint(i), "running"))
			r.pass(time.Second)
			assert.Contains(t, r.take(), fmt.Sprintf("ContainerStarted %d ", i))
		}
		assert.Equal(t, 1, r.Inspections("h1"))
		assert.NoError(t, r.g.Healthy())

		// Its deadline ends the inspection, and it is tried again; what has happened
		// in the meantime is not lost.
		r.Set("h1", ctr("h1b", "running"))
		r.Do(func(s *plegtest.State) { clear(s.Hung) })
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
			inGeneric(t, pleg.Options{}, func(r *rig) {
				r.Do(func(s *plegtest.State) {
					s.ListHangs = what == "list"
					s.Hung["p"] = what == "inspections"
				})
				r.Set("p", ctr("a", "running"))
				r.run()
				r.pass(1500 * time.Millisecond)
				r.halt()
				_, open := <-r.g.Watch()
				assert.False(t, open, "the channel ends with Run")
				assert.ErrorIs(t, r.g.Healthy(), pleg.ErrNotRunning)
			})
		})
	}
}

func TestRunRunsOnce(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		assert.Error(t, r.g.Healthy(), "not before Run")
		r.run()
		assert.ErrorIs(t, r.g.Run(r.Context()), runtime.ErrAlreadyRunning)
		assert.NoError(t, r.g.Healthy())
		r.halt()
		assert.ErrorIs(t, r.g.Run(r.Context()), runtime.ErrAlreadyRunning)
	})
}

func TestInspectionsSideBySide(t *testing.T) {
	inGeneric(t, pleg.Options{MaxInspections: 4}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.InspectTakes = 100 * time.Millisecond })
		for i := range 20 {
			r.Set(types.UID(fmt.Sprint(i)), ctr(fmt.Sprint("c", i), "running"))
		}
		r.run()
		r.pass(499 * time.Millisecond)
		assert.Len(t, r.drain(), 16)
		r.pass(time.Millisecond)
		assert.Len(t, r.drain(), 4)
		r.Do(func(s *plegtest.State) { assert.Equal(t, 4, s.MostInspections) })
	})
}

func TestFailedInspectionIsTriedAgain(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.run()
		assert.Len(t, r.drain(), 1)

		r.Do(func(s *plegtest.State) { s.Broken["p"] = true })
		r.Set("p", ctr("b", "running"), ctr("a", "exited"))
		r.pass(time.Second)
		r.Set("p", ctr("b", "exited"), ctr("a", "exited"))
		r.pass(time.Second)
		r.Set("p", ctr("c", "running"))
		r.pass(time.Second)
		r.pass(time.Second)
		assert.Empty(t, r.drain())
		assert.Equal(t, "a=running", r.cached("p"), "an error replaces no status")
		assert.Equal(t, 5, r.Inspections("p"))
		assert.NoError(t, r.g.Healthy())

		r.Do(func(s *plegtest.State) { s.Broken["p"] = false })
		r.pass(time.Second)
		assert.Equal(t, []string{
			"p[ContainerStarted b ContainerDied a ContainerDied b ContainerStarted c ContainerRemoved b " +
				"ContainerRemoved a]",
		}, r.drain())
		assert.Equal(t, "c=running", r.cached("p"))
	})
}

func TestPodGoneWhileItsInspectionFails(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.Broken["p"] = true })
		r.Set("p", ctr("a", "exited"))
		r.run()
		assert.Empty(t, r.drain())
		r.Set("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a ContainerRemoved a]"}, r.drain())
		assert.Empty(t, r.cached("p"))
		assert.Empty(t, r.cache.Seen(""))
		assert.Zero(t, pleg.Remembered(r.g))
	})
}

func TestHealthIsTheProgressOfTheListCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(s *plegtest.State, on bool)
		cause error
	}{
		{"fails", func(s *plegtest.State, on bool) {
			s.ListErr = nil
			if on {
				s.ListErr = plegtest.ErrInjected
			}
		}, plegtest.ErrInjected},
		{"hangs", func(s *plegtest.State, on bool) { s.ListHangs = on }, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inGeneric(t, pleg.Options{}, func(r *rig) {
				r.Do(func(s *plegtest.State) { tc.fault(s, true) })
				r.run()
				require.Error(t, r.g.Healthy(), "no list call has succeeded yet")
				r.Do(func(s *plegtest.State) { tc.fault(s, false) })
				r.pass(2*time.Minute + 2*time.Second)
				require.NoError(t, r.g.Healthy())

				r.Set("p", ctr("a", "running"))
				r.pass(time.Second)
				assert.Len(t, r.drain(), 1)

				r.Do(func(s *plegtest.State) { tc.fault(s, true) })
				r.Set("p", ctr("a", "exited"))
				r.pass(3 * time.Minute)
				require.NoError(t, r.g.Healthy(), "three minutes are not over the threshold")
				r.pass(time.Millisecond)
				err := r.g.Healthy()
				require.ErrorIs(t, err, tc.cause)
				require.ErrorContains(t, err, "threshold is 3m0s")

				r.Do(func(s *plegtest.State) { tc.fault(s, false) })
				r.pass(2*time.Minute + 2*time.Second)
				require.NoError(t, r.g.Healthy())
				assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
			})
		})
	}
}

func TestRelistOnRequest(t *testing.T) {
	inGeneric(t, pleg.Options{RelistPeriod: time.Minute}, func(r *rig) {
		r.g.Relist() // served by the first relist
		r.run()
		require.Equal(t, 1, r.Lists())

		r.Do(func(s *plegtest.State) { s.ListTakes = 10 * time.Millisecond })
		r.Set("p", ctr("a", "running"))
		r.g.Relist()
		r.g.Relist()
		r.pass(5 * time.Millisecond)
		r.g.Relist() // this one is under way, so it is another one that serves
		r.g.Relist()
		r.pass(5 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
		r.pass(time.Second)
		assert.Equal(t, 3, r.Lists())

		r.pass(58*time.Second + 990*time.Millisecond)
		assert.Equal(t, 3, r.Lists())
		r.pass(30 * time.Millisecond)
		assert.Equal(t, 4, r.Lists(), "the period begins anew")
	})
}

func TestPodThatAWorkerHasReadIsNotInspectedAgain(t *testing.T) {
	inGeneric(t, pleg.Options{MaxInspections: 1}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.InspectTakes = 100 * time.Millisecond })
		r.Set("a", ctr("1", "running"))
		r.Set("b", ctr("2", "running"))
		r.run() // b has to wait for a
		status, err := r.cache.Newer(r.Context(), plegtest.Ref("b"), r.cache.Now())
		require.NoError(t, err)
		require.Equal(t, "2=running", plegtest.Format(status))
		r.pass(500 * time.Millisecond)
		assert.Len(t, r.drain(), 2)
		assert.Equal(t, 1, r.Inspections("b"))
	})
}

// TestStatusReadDuringTheListCall: a worker reads a pod while the list call is
// under way, then a container dies, and the list shows it. The worker's status
// is newer than the beginning of the list call, but does not have the exit.
func TestStatusReadDuringTheListCall(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.run()
		assert.Len(t, r.drain(), 1)
		r.Do(func(s *plegtest.State) { s.ListTakes, s.Late = 100*time.Millisecond, true })
		r.pass(1050 * time.Millisecond)

		_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
		require.NoError(t, err)
		r.Set("p", ctr("a", "exited"))
		r.pass(100 * time.Millisecond)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Equal(t, "a=exited", r.cached("p"))
	})
}

// TestPodMadeDuringTheListCall: the list does not show the pod any more, but a
// worker has made it again and read it before the list call returned.
func TestPodMadeDuringTheListCall(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", ctr("a", "exited"))
		r.run()
		assert.Len(t, r.drain(), 1)
		r.Set("p")
		r.Do(func(s *plegtest.State) { s.ListTakes = 100 * time.Millisecond })
		r.pass(1050 * time.Millisecond)

		r.Set("p", ctr("b", "running"))
		_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
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
			inGeneric(t, pleg.Options{}, func(r *rig) {
				var before []plegtest.Part
				if tc.listed {
					before = []plegtest.Part{sbx("s", "ready"), ctr("a", "running")}
				}
				r.Set("p", before...)
				r.run()
				r.drain()
				r.pass(1500 * time.Millisecond)
				if tc.during {
					r.Do(func(s *plegtest.State) { s.ListTakes, s.Late = 100*time.Millisecond, true })
					r.pass(550 * time.Millisecond)
				}
				r.Set("p", append(before, ctr("b", "running"))...)
				_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
				require.NoError(t, err)
				require.Contains(t, r.cached("p"), "b=running")
				r.Set("p", before...)
				r.pass(1500 * time.Millisecond)
				assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
				assert.NotContains(t, r.cached("p"), "b=running")
			})
		})
	}
}

// TestStateThatTheCacheHasLostAgain: a reader received a state that passed between two
// relists. By the next list the cache agrees with the list again, so only Seen shows that
// the reader has something else.
func TestStateThatTheCacheHasLostAgain(t *testing.T) {
	for _, listed := range []bool{true, false} {
		for _, by := range []string{"a read", "Forget"} {
			t.Run(fmt.Sprintf("listed=%t/by %s", listed, by), func(t *testing.T) {
				inGeneric(t, pleg.Options{}, func(r *rig) {
					var before []plegtest.Part
					if listed {
						before = []plegtest.Part{sbx("s", "ready"), ctr("a", "running")}
					}
					r.Set("p", before...)
					r.run()
					r.drain()
					r.pass(1500 * time.Millisecond)

					r.Set("p", append(before, ctr("b", "running"))...)
					got, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
					require.NoError(t, err)
					require.Contains(t, plegtest.Format(got), "b=running")
					r.Set("p", before...)
					if by == "Forget" {
						r.cache.ForgetUntil("p", r.cache.Now())
					} else {
						_, err = r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
						require.NoError(t, err)
					}
					require.NotContains(t, r.cached("p"), "b=running")

					r.pass(time.Second)
					assert.Equal(t, []string{"p[ContainerStarted b ContainerDied b ContainerRemoved b]"}, r.drain())
					r.pass(10 * time.Second)
					assert.Empty(t, r.drain(), "reported once")
				})
			})
		}
	}
}

func TestPodIsDeliveredWhileListCallIsUnderWay(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Set("p", ctr("a", "running"))
		r.run()
		r.Do(func(s *plegtest.State) { s.ListHangs = true })
		r.pass(time.Minute)
		assert.Equal(t, []string{"p[ContainerStarted a]"}, r.drain())
	})
}

func TestCauseOfRunsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := plegtest.NewRuntime()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("any"))
		g := pleg.NewGeneric(w, runtime.NewCache(w, runtime.CacheOptions{}), pleg.Options{})
		assert.NoError(t, g.Run(ctx))
	})
}
