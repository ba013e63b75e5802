package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// stub is an inspector whose every call is answered by the test.
type stub struct {
	calls chan call
}

type call struct {
	ctx    context.Context
	ref    PodRef
	answer chan<- answer
}

type answer struct {
	status *PodStatus
	err    error
	panics any
}

func newStub() *stub { return &stub{calls: make(chan call)} }

func (s *stub) InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error) {
	got := make(chan answer)
	select {
	case s.calls <- call{ctx, ref, got}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-got:
		if a.panics != nil {
			panic(a.panics)
		}
		return a.status, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// next returns the call that is under way; there must be one.
func (s *stub) next(t *testing.T) call {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-s.calls:
		return c
	default:
		require.Fail(t, "no inspection is under way")
		panic("unreachable")
	}
}

func (s *stub) idle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-s.calls:
		require.Failf(t, "inspection", "of %s", c.ref)
	default:
	}
}

var testRef = PodRef{UID: "u", Namespace: "ns", Name: "p"}

// seen is a status with one container of that name.
func seen(name string) *PodStatus {
	return &PodStatus{PodRef: testRef, Containers: []ContainerStatus{{Container: Container{ID: ContainerID{ID: name}, Name: name}}}}
}

func nameIn(s *PodStatus) string {
	if s == nil || len(s.Containers) == 0 {
		return ""
	}
	return s.Containers[0].Name
}

// asked is a call of Newer under way.
type asked struct {
	status *PodStatus
	err    error
	panics any
	done   atomic.Bool
}

func ask(ctx context.Context, c *Cache, after Mark) *asked {
	a := &asked{}
	go func() {
		defer a.done.Store(true)
		defer func() { a.panics = recover() }()
		a.status, a.err = c.Newer(ctx, testRef, after)
	}()
	return a
}

func (a *asked) wants(t *testing.T, name string) {
	t.Helper()
	synctest.Wait()
	require.True(t, a.done.Load(), "not answered yet")
	require.NoError(t, a.err)
	assert.Equal(t, name, nameIn(a.status))
}

func (a *asked) fails(t *testing.T, target error) {
	t.Helper()
	synctest.Wait()
	require.True(t, a.done.Load(), "not answered yet")
	require.ErrorIs(t, a.err, target)
	assert.ErrorContains(t, a.err, testRef.String())
	assert.Nil(t, a.status)
}

// forget drops all that is known of the pod at the moment, reads under way included.
func forget(c *Cache, uid types.UID) { c.ForgetUntil(uid, c.Now()) }

// statuses counts the pods of which the cache has a status.
func statuses(c *Cache) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.pods {
		if e.status != nil {
			n++
		}
	}
	return n
}

func inBubble(t *testing.T, test func(t *testing.T, s *stub, c *Cache)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		test(t, s, NewCache(s, CacheOptions{}))
	})
}

func TestCacheReadsThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		_, known := c.Get("u")
		require.False(t, known)
		a := ask(t.Context(), c, 0)
		call := s.next(t)
		assert.Equal(t, testRef, call.ref)
		call.answer <- answer{status: seen("1")}
		a.wants(t, "1")

		status, known := c.Get("u")
		require.True(t, known)
		assert.Same(t, a.status, status)
		assert.Equal(t, 1, statuses(c))

		ask(t.Context(), c, status.Mark-1).wants(t, "1") // from memory
		s.idle(t)

		a = ask(t.Context(), c, status.Mark) // newer than what is known
		s.next(t).answer <- answer{status: seen("2")}
		a.wants(t, "2")
		assert.Greater(t, a.status.Mark, status.Mark)
	})
}

func TestCacheNowIsAfterWhatIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		a := ask(t.Context(), c, c.Now())
		s.next(t).answer <- answer{status: seen("1")}
		a.wants(t, "1")
		now := c.Now()
		assert.Greater(t, now, a.status.Mark)
		a = ask(t.Context(), c, now)
		s.next(t).answer <- answer{status: seen("2")}
		a.wants(t, "2")
		assert.Greater(t, a.status.Mark, now)
	})
}

func TestCacheDoesNotChangeWhatTheInspectorReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		theirs := seen("1")
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: theirs}
		a.wants(t, "1")
		assert.Zero(t, theirs.Mark)
		assert.NotZero(t, a.status.Mark)
	})
}

func TestCacheSharesAFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		before := c.Now()
		var all []*asked
		for range 10 {
			all = append(all, ask(t.Context(), c, before))
		}
		s.next(t).answer <- answer{status: seen("1")}
		for _, a := range all {
			a.wants(t, "1")
		}
		s.idle(t)

		// A failure is shared too: a runtime in trouble is not asked ten times.
		before = c.Now()
		all = nil
		for range 10 {
			all = append(all, ask(t.Context(), c, before))
		}
		s.next(t).answer <- answer{err: ErrUnavailable}
		for _, a := range all {
			a.fails(t, ErrUnavailable)
		}
		s.idle(t)
		status, _ := c.Get("u")
		assert.Equal(t, "1", nameIn(status), "an error replaces nothing")
	})
}

func TestCacheDoesNotShareAFlightThatBeganTooEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		early := ask(t.Context(), c, 0)
		first := s.next(t)
		late := []*asked{ask(t.Context(), c, c.Now()), ask(t.Context(), c, c.Now())}
		s.idle(t) // one inspection of a pod at a time

		first.answer <- answer{status: seen("1")}
		early.wants(t, "1")
		second := s.next(t)
		for _, a := range late {
			assert.False(t, a.done.Load())
		}
		second.answer <- answer{status: seen("2")}
		for _, a := range late {
			a.wants(t, "2")
		}
		s.idle(t)
	})
}

func TestCacheFollowerTakesOverFromACancelledLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		ctx, cancel := context.WithCancelCause(t.Context())
		leader := ask(ctx, c, 0)
		s.next(t)
		follower := ask(t.Context(), c, 0)
		synctest.Wait()

		why := errors.New("pod is to end")
		cancel(why)
		leader.fails(t, why)
		assert.ErrorIs(t, leader.err, context.Canceled, "and what the inspector said")
		assert.False(t, follower.done.Load())
		s.next(t).answer <- answer{status: seen("1")}
		follower.wants(t, "1")
	})
}

func TestCacheFollowerGivesUpAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		leader := ask(t.Context(), c, 0)
		call := s.next(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		follower := ask(ctx, c, 0)
		time.Sleep(time.Second)
		follower.fails(t, context.DeadlineExceeded)
		assert.NoError(t, call.ctx.Err())
		call.answer <- answer{status: seen("1")}
		leader.wants(t, "1")
	})
}

func TestCacheBoundsAnInspection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		a := ask(t.Context(), c, 0)
		s.next(t)
		b := ask(t.Context(), c, 0)
		time.Sleep(2*time.Minute - 1)
		synctest.Wait()
		assert.False(t, a.done.Load())
		time.Sleep(time.Nanosecond)
		a.fails(t, context.DeadlineExceeded)
		b.fails(t, context.DeadlineExceeded) // the pod's fault, not the leader's
		s.idle(t)
	})
}

func TestCachePanicReleasesTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		leader := ask(t.Context(), c, 0)
		call := s.next(t)
		follower := ask(t.Context(), c, 0)
		synctest.Wait()
		call.answer <- answer{panics: "oops"}
		synctest.Wait()
		assert.Equal(t, "oops", leader.panics, "the caller gets the panic")
		s.next(t).answer <- answer{status: seen("1")}
		follower.wants(t, "1")
		assert.Equal(t, 1, statuses(c))
	})
}

func TestCacheOfAnInspectorThatReturnsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{}
		synctest.Wait()
		require.Nil(t, a.panics)
		require.ErrorContains(t, a.err, "neither a status nor an error")
		assert.Empty(t, c.pods)
	})
}

func TestCacheKeepsNothingOfPodsThatAreNot(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: seen("1")}
		a.wants(t, "1")
		a = ask(t.Context(), c, c.Now())
		s.next(t).answer <- answer{status: &PodStatus{PodRef: testRef}}
		a.wants(t, "")
		require.NotNil(t, a.status)
		_, known := c.Get("u")
		assert.False(t, known)
		assert.Empty(t, c.pods)

		a = ask(t.Context(), c, 0)
		s.next(t).answer <- answer{err: ErrUnavailable}
		a.fails(t, ErrUnavailable)
		assert.Empty(t, c.pods)
	})
}

func TestCacheAnswersTheFirstQuestionFromTheList(t *testing.T) {
	others := []*Pod{{PodRef: PodRef{UID: "other"}}}
	// reads reports whether the first question about the pod takes a read.
	reads := func(t *testing.T, s *stub, c *Cache) bool {
		t.Helper()
		after := c.First("u")
		a := ask(t.Context(), c, after)
		synctest.Wait()
		if !a.done.Load() {
			s.next(t).answer <- answer{status: &PodStatus{}}
			a.wants(t, "")
			return true
		}
		a.wants(t, "")
		assert.Equal(t, testRef, a.status.PodRef)
		assert.Greater(t, a.status.Mark, after)
		s.idle(t)
		return false
	}
	for _, test := range []struct {
		name  string
		given func(t *testing.T, s *stub, c *Cache)
		reads bool
	}{
		{"without a list", func(*testing.T, *stub, *Cache) {}, true},
		{"not in the list", func(_ *testing.T, _ *stub, c *Cache) { c.Listed(others, c.Now()) }, false},
		{"in the list", func(_ *testing.T, _ *stub, c *Cache) { c.Listed([]*Pod{{PodRef: testRef}}, c.Now()) }, true},
		{"in the list before", func(_ *testing.T, _ *stub, c *Cache) {
			c.Listed([]*Pod{{PodRef: testRef}}, c.Now())
			c.Listed(others, c.Now())
		}, false},
		{"in a list that began later and was told first", func(_ *testing.T, _ *stub, c *Cache) {
			early := c.Now()
			c.Listed([]*Pod{{PodRef: testRef}}, c.Now())
			c.Listed(others, early)
		}, true},
		{"asked about since the list", func(t *testing.T, s *stub, c *Cache) {
			c.Listed(others, c.Now())
			assert.False(t, reads(t, s, c))
		}, true},
		{"read since the list", func(t *testing.T, s *stub, c *Cache) {
			c.Listed(others, c.Now())
			a := ask(t.Context(), c, c.Now())
			s.next(t).answer <- answer{status: &PodStatus{}}
			a.wants(t, "")
		}, true},
		{"known and forgotten since the list", func(t *testing.T, s *stub, c *Cache) {
			c.Listed(others, c.Now())
			a := ask(t.Context(), c, c.Now())
			s.next(t).answer <- answer{status: seen("x")}
			a.wants(t, "x")
			forget(c, "u")
		}, true},
		{"asked about while the list was read", func(t *testing.T, s *stub, c *Cache) {
			c.Listed(others, c.Now())
			began := c.Now()
			assert.False(t, reads(t, s, c))
			c.Listed(others, began)
		}, true},
		{"asked about before the list", func(t *testing.T, s *stub, c *Cache) {
			c.Listed(others, c.Now())
			assert.False(t, reads(t, s, c))
			c.Listed(others, c.Now())
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *Cache) {
				test.given(t, s, c)
				assert.Equal(t, test.reads, reads(t, s, c))
			})
		})
	}
}

func TestCacheAnswersFromTheListOnlyWhoAsksForThat(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		before := c.Now()
		c.Now()
		c.Listed(nil, c.Now())
		for _, after := range []Mark{0, before, c.Now()} {
			a := ask(t.Context(), c, after)
			s.next(t).answer <- answer{status: &PodStatus{}}
			a.wants(t, "")
		}
		first := c.First("another")
		c.Listed(nil, c.Now())
		_, err := c.Newer(cancelled(t), PodRef{UID: "another"}, first)
		require.ErrorIs(t, err, context.Canceled, "a read was tried")
	})
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestCacheForget(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		forget(c, "never heard of")
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: seen("1")}
		a.wants(t, "1")
		forget(c, "u")
		assert.Zero(t, statuses(c))
		assert.Empty(t, c.pods)

		// A read under way answers its callers, and is not kept.
		a = ask(t.Context(), c, 0)
		call := s.next(t)
		forget(c, "u")
		late := ask(t.Context(), c, c.Now())
		synctest.Wait()
		call.answer <- answer{status: seen("2")}
		a.wants(t, "2")
		_, known := c.Get("u")
		assert.False(t, known)

		// One that began after it is.
		s.next(t).answer <- answer{status: seen("3")}
		late.wants(t, "3")
		status, _ := c.Get("u")
		assert.Equal(t, "3", nameIn(status))
	})
}

func TestCacheForgetUntil(t *testing.T) {
	for _, tc := range []struct {
		name string
		// The mark is drawn before or after the read begins; the pod is forgotten
		// while the read is under way, or after it.
		markFirst, underWay bool
		all                 bool
	}{
		{"older status", false, false, true},
		{"older read under way", false, true, true},
		{"newer status", true, false, false},
		{"newer read under way", true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *Cache) {
				var mark Mark
				if tc.markFirst {
					mark = c.Now()
				}
				a := ask(t.Context(), c, 0)
				call := s.next(t)
				if !tc.markFirst {
					mark = c.Now()
				}
				if !tc.underWay {
					call.answer <- answer{status: seen("1")}
					a.wants(t, "1")
				}
				assert.Equal(t, tc.all, c.ForgetUntil("u", mark))
				if tc.underWay {
					call.answer <- answer{status: seen("1")}
					a.wants(t, "1")
				}
				_, known := c.Get("u")
				assert.Equal(t, !tc.all, known)
				assert.True(t, c.ForgetUntil("u", c.Now()))
				assert.Empty(t, c.pods)
				assert.True(t, c.ForgetUntil("u", c.Now()))
			})
		})
	}
}

func TestCacheSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *Cache) {
		a := ask(t.Context(), c, 0)
		call := s.next(t)
		assert.Empty(t, c.Seen(""), "the end of the read counts, not its beginning")
		call.answer <- answer{status: seen("1")}
		a.wants(t, "1")
		assert.Empty(t, c.Seen("other"))
		assert.Equal(t, []*PodStatus{a.status}, c.Seen("u"))
		assert.Empty(t, c.Seen("u"), "told once")
		assert.Empty(t, c.Seen(""))
		_, known := c.Get("u")
		assert.True(t, known)
	})
}

func TestCacheSeenTellsWhatCallersGot(t *testing.T) {
	// A read shows a container of that name; "" is a pod that the runtime does not
	// know, "-" a Forget, "-1" a Forget while the read is under way.
	for _, tc := range []struct {
		name          string
		before, after []string // the last time that somebody asked
		want          []string
	}{
		{"nothing", nil, nil, nil},
		{"told already", []string{"1", "2"}, nil, nil},
		{"one", nil, []string{"1"}, []string{"1"}},
		{"replaced", nil, []string{"1", "2"}, []string{"1", "2"}},
		{"replaced by the same", nil, []string{"1", "1"}, []string{"1"}},
		{"replaced, and that by the same", nil, []string{"1", "2", "2"}, []string{"1", "2"}},
		{"there and back", nil, []string{"1", "2", "1"}, []string{"2", "1"}},
		{"many", nil, []string{"1", "2", "3"}, []string{"2", "3"}},
		{"replaced what was told already", []string{"1"}, []string{"2"}, []string{"2"}},
		{"gone", nil, []string{"1", ""}, []string{"1", ""}},
		{"never there", nil, []string{""}, []string{""}},
		{"forgotten", nil, []string{"1", "-"}, []string{"1"}},
		{"forgotten in between", nil, []string{"1", "2", "-", "2"}, []string{"1", "2"}},
		{"forgotten while it was read", nil, []string{"-1"}, []string{"1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *Cache) {
				require.Empty(t, c.Seen(""), "from now on it remembers pods that are gone")
				read := func(what []string) {
					for _, name := range what {
						if name == "-" {
							forget(c, "u")
							continue
						}
						a := ask(t.Context(), c, c.Now())
						call := s.next(t)
						if name, during := strings.CutPrefix(name, "-"); during {
							forget(c, "u")
							call.answer <- answer{status: seen(name)}
							a.wants(t, name)
							continue
						}
						status := seen(name)
						if name == "" {
							status = &PodStatus{PodRef: testRef}
						}
						call.answer <- answer{status: status}
						a.wants(t, name)
					}
				}
				read(tc.before)
				c.Seen("")
				read(tc.after)
				var got []string
				for _, status := range c.Seen("") {
					got = append(got, nameIn(status))
				}
				assert.Equal(t, tc.want, got)
				assert.Empty(t, c.Seen(""))
				forget(c, "u")
				assert.Empty(t, c.pods)
			})
		})
	}
}

// versioned is a runtime whose pods have versions that only go up.
type versioned struct {
	mu       sync.Mutex
	versions map[types.UID]int
	flights  map[types.UID]int
}

func (v *versioned) bump(uid types.UID) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions[uid]++
	return v.versions[uid]
}

func (v *versioned) InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error) {
	v.mu.Lock()
	v.flights[ref.UID]++
	alone, version := v.flights[ref.UID] == 1, v.versions[ref.UID]
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.flights[ref.UID]--
		v.mu.Unlock()
	}()
	if !alone {
		panic("two inspections of one pod at once")
	}
	if rand.IntN(8) == 0 {
		return nil, ErrUnavailable
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &PodStatus{PodRef: ref, Containers: []ContainerStatus{{ExitCode: int32(version)}}}, nil
}

// TestCacheAtOnce has many callers change, read and forget pods side by side: who
// asks for a status after a mark never gets one that lacks an earlier change.
func TestCacheAtOnce(t *testing.T) {
	v := &versioned{versions: map[types.UID]int{}, flights: map[types.UID]int{}}
	c := NewCache(v, CacheOptions{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 500 {
				uid := types.UID(fmt.Sprint(rand.IntN(3)))
				ctx, cancel := context.WithCancel(t.Context())
				switch rand.IntN(12) {
				case 0:
					forget(c, uid)
				case 1:
					c.ForgetUntil(uid, c.Now())
				case 2:
					cancel()
				case 3:
					go cancel()
				case 4:
					_ = c.Seen("")
				case 5:
					_ = c.Seen(uid)
				}
				least := v.bump(uid)
				after := c.Now()
				status, err := c.Newer(ctx, PodRef{UID: uid}, after)
				switch {
				case err != nil:
					if !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				case status.Mark <= after || int(status.Containers[0].ExitCode) < least:
					t.Errorf("status %d of mark %d, want at least %d after %d", status.Containers[0].ExitCode, status.Mark, least, after)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	for i := range 3 {
		forget(c, types.UID(fmt.Sprint(i)))
	}
	_ = c.Seen("")
	assert.Empty(t, c.pods)
}

func BenchmarkCacheNewerFromMemory(b *testing.B) {
	v := &versioned{versions: map[types.UID]int{}, flights: map[types.UID]int{}}
	c := NewCache(v, CacheOptions{})
	for statuses(c) == 0 {
		_, _ = c.Newer(b.Context(), testRef, 0)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = c.Newer(b.Context(), testRef, 0)
		}
	})
}
