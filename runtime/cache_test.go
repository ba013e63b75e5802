package runtime_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// stub is an inspector whose every call is answered by the test.
type stub struct {
	calls chan call
}

type call struct {
	ctx    context.Context
	ref    runtime.PodRef
	answer chan<- answer
}

type answer struct {
	status *runtime.PodStatus
	err    error
	panics any
}

func newStub() *stub { return &stub{calls: make(chan call)} }

func (s *stub) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
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

var testRef = runtime.PodRef{UID: "u", Namespace: "ns", Name: "p"}

// seen is a status with one container of that name.
func seen(name string) *runtime.PodStatus {
	return &runtime.PodStatus{PodRef: testRef,
		Containers: []runtime.ContainerStatus{{Container: runtime.Container{ID: runtime.ContainerID{ID: name},
			Name: name}}}}
}

func nameIn(s *runtime.PodStatus) string {
	if s == nil || len(s.Containers) == 0 {
		return ""
	}
	return s.Containers[0].Name
}

// asked is a call of Newer under way.
type asked struct {
	status *runtime.PodStatus
	err    error
	done   atomic.Bool
}

func ask(ctx context.Context, c *runtime.Cache, after runtime.Mark) *asked {
	a := &asked{}
	go func() {
		defer a.done.Store(true)
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
func forget(c *runtime.Cache, uid types.UID) { c.ForgetUntil(uid, c.Now()) }

func inBubble(t *testing.T, test func(t *testing.T, s *stub, c *runtime.Cache)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		test(t, s, runtime.NewCache(s, runtime.CacheOptions{}))
	})
}

func TestCacheReadsThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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
		assert.Equal(t, 1, c.Statuses())

		ask(t.Context(), c, status.Mark-1).wants(t, "1") // from memory
		s.idle(t)

		a = ask(t.Context(), c, status.Mark) // newer than what is known
		s.next(t).answer <- answer{status: seen("2")}
		a.wants(t, "2")
		assert.Greater(t, a.status.Mark, status.Mark)
	})
}

func TestCacheNowIsAfterWhatIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		theirs := seen("1")
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: theirs}
		a.wants(t, "1")
		assert.Zero(t, theirs.Mark)
		assert.NotZero(t, a.status.Mark)
	})
}

func TestCacheSharesAnInspection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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
		s.next(t).answer <- answer{err: runtime.ErrUnavailable}
		for _, a := range all {
			a.fails(t, runtime.ErrUnavailable)
		}
		s.idle(t)
		status, _ := c.Get("u")
		assert.Equal(t, "1", nameIn(status), "an error replaces nothing")
	})
}

func TestCacheDoesNotShareAnInspectionThatBeganTooEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		ctx, cancel := context.WithCancelCause(t.Context())
		leader := ask(ctx, c, 0)
		s.next(t)
		follower := ask(t.Context(), c, 0)
		synctest.Wait()

		why := errors.New("pod is to end")
		cancel(why)
		leader.fails(t, why)
		assert.ErrorIs(t, leader.err, context.Canceled, "and the error of the inspector")
		assert.False(t, follower.done.Load())
		s.next(t).answer <- answer{status: seen("1")}
		follower.wants(t, "1")
	})
}

func TestCacheFollowerGivesUpAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
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

func TestCachePanicIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		leader := ask(t.Context(), c, 0)
		call := s.next(t)
		follower := ask(t.Context(), c, 0)
		synctest.Wait()
		call.answer <- answer{panics: "oops"}
		synctest.Wait()
		for _, a := range []*asked{leader, follower} {
			require.True(t, a.done.Load())
			require.ErrorAs(t, a.err, new(*runtime.PanicError))
		}
		again := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: seen("1")}
		again.wants(t, "1")
		assert.Equal(t, 1, c.Statuses())
	})
}

func TestCacheOfAnInspectorThatReturnsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{}
		synctest.Wait()
		require.ErrorContains(t, a.err, "neither a status nor an error")
		assert.Zero(t, c.Entries())
	})
}

func TestCacheKeepsNothingOfPodsThatDoNotExist(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: seen("1")}
		a.wants(t, "1")
		a = ask(t.Context(), c, c.Now())
		s.next(t).answer <- answer{status: &runtime.PodStatus{PodRef: testRef}}
		a.wants(t, "")
		require.NotNil(t, a.status)
		_, known := c.Get("u")
		assert.False(t, known)
		assert.Zero(t, c.Entries())

		a = ask(t.Context(), c, 0)
		s.next(t).answer <- answer{err: runtime.ErrUnavailable}
		a.fails(t, runtime.ErrUnavailable)
		assert.Zero(t, c.Entries())
	})
}

func TestCacheAnswersTheFirstQuestionFromTheList(t *testing.T) {
	others := []*runtime.Pod{{PodRef: runtime.PodRef{UID: "other"}}}
	// reads reports whether the first question about the pod takes a read.
	reads := func(t *testing.T, s *stub, c *runtime.Cache) bool {
		t.Helper()
		after := c.First("u")
		a := ask(t.Context(), c, after)
		synctest.Wait()
		if !a.done.Load() {
			s.next(t).answer <- answer{status: &runtime.PodStatus{}}
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
		given func(t *testing.T, s *stub, c *runtime.Cache)
		reads bool
	}{
		{"without a list", func(*testing.T, *stub, *runtime.Cache) {}, true},
		{"not in the list", func(_ *testing.T, _ *stub, c *runtime.Cache) { c.Listed(others, c.Now()) }, false},
		{"in the list", func(_ *testing.T, _ *stub, c *runtime.Cache) { c.Listed([]*runtime.Pod{{PodRef: testRef}}, c.Now()) }, true},
		{"in the list before", func(_ *testing.T, _ *stub, c *runtime.Cache) {
			c.Listed([]*runtime.Pod{{PodRef: testRef}}, c.Now())
			c.Listed(others, c.Now())
		}, false},
		{"in a list that began later and was recorded first", func(_ *testing.T, _ *stub, c *runtime.Cache) {
			early := c.Now()
			c.Listed([]*runtime.Pod{{PodRef: testRef}}, c.Now())
			c.Listed(others, early)
		}, true},
		{"asked about since the list", func(t *testing.T, s *stub, c *runtime.Cache) {
			c.Listed(others, c.Now())
			assert.False(t, reads(t, s, c))
		}, true},
		{"read since the list", func(t *testing.T, s *stub, c *runtime.Cache) {
			c.Listed(others, c.Now())
			a := ask(t.Context(), c, c.Now())
			s.next(t).answer <- answer{status: &runtime.PodStatus{}}
			a.wants(t, "")
		}, true},
		{"known and forgotten since the list", func(t *testing.T, s *stub, c *runtime.Cache) {
			c.Listed(others, c.Now())
			a := ask(t.Context(), c, c.Now())
			s.next(t).answer <- answer{status: seen("x")}
			a.wants(t, "x")
			forget(c, "u")
		}, true},
		{"asked about while the list was read", func(t *testing.T, s *stub, c *runtime.Cache) {
			c.Listed(others, c.Now())
			began := c.Now()
			assert.False(t, reads(t, s, c))
			c.Listed(others, began)
		}, true},
		{"asked about before the list", func(t *testing.T, s *stub, c *runtime.Cache) {
			c.Listed(others, c.Now())
			assert.False(t, reads(t, s, c))
			c.Listed(others, c.Now())
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
				test.given(t, s, c)
				assert.Equal(t, test.reads, reads(t, s, c))
			})
		})
	}
}

func TestCacheAnswersFromTheListOnlyWithTheMarkOfFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		before := c.Now()
		c.Now()
		c.Listed(nil, c.Now())
		for _, after := range []runtime.Mark{0, before, c.Now()} {
			a := ask(t.Context(), c, after)
			s.next(t).answer <- answer{status: &runtime.PodStatus{}}
			a.wants(t, "")
		}
		first := c.First("another")
		c.Listed(nil, c.Now())
		_, err := c.Newer(cancelled(t), runtime.PodRef{UID: "another"}, first)
		require.ErrorIs(t, err, context.Canceled, "a read was tried")
	})
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
