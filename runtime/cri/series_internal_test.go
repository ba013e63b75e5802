package cri

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Inspections that come while a list is under way share the next one, so that n of them take
// two lists.
func TestInspectionsShareLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSeries[struct{}]()
		var began []time.Time
		var full []bool
		fill := func(all bool) (struct{}, error) {
			began, full = append(began, time.Now()), append(full, all)
			time.Sleep(time.Second)
			return struct{}{}, nil
		}
		var tasks sync.WaitGroup
		get := func() {
			called := time.Now()
			_, err := l.do(t.Context(), "list", fill)
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, time.Since(called), time.Second,
				"a list that began before the call is not an answer")
		}
		for range 100 {
			time.Sleep(time.Millisecond)
			tasks.Go(get)
		}
		tasks.Wait()
		assert.Equal(t, []bool{false, true}, full, "of one pod, of all")
		assert.Equal(t, time.Second, began[1].Sub(began[0]), "one at a time")
		get()
		assert.Equal(t, []bool{false, true, false}, full)
	})
}

// An inspection that gives up, fails or panics while it makes the list of others does not end theirs.
func TestSharedListOfAnInspectionThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSeries[struct{}]()
		ctx, cancel := context.WithCancel(t.Context())
		lists := 0
		fill := func(ctx context.Context) func(bool) (struct{}, error) {
			return func(bool) (struct{}, error) {
				lists++
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				return struct{}{}, ctx.Err()
			}
		}
		var tasks sync.WaitGroup
		get := func(ctx context.Context, want error) {
			tasks.Go(func() {
				_, err := l.do(ctx, "list", fill(ctx))
				if want == nil {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, want)
				}
			})
			synctest.Wait()
		}
		get(ctx, context.Canceled) // makes a list
		get(ctx, context.Canceled) // is to make the next one
		get(ctx, context.Canceled) // waits for it
		get(t.Context(), nil)
		get(t.Context(), nil)
		cancel()
		tasks.Wait()
		assert.LessOrEqual(t, lists, 3, "the second of the two that remain may come when a list is under way")

		failed := errors.New("failed")
		_, err := l.do(t.Context(), "list", func(bool) (struct{}, error) { return struct{}{}, failed })
		require.ErrorIs(t, err, failed)
		tasks.Go(func() {
			defer func() { assert.Equal(t, "a bug", recover()) }()
			_, _ = l.do(t.Context(), "list", func(bool) (struct{}, error) {
				time.Sleep(time.Second)
				panic("a bug")
			})
		})
		synctest.Wait()
		get(t.Context(), nil)
		get(t.Context(), nil)
		tasks.Wait()
	})
}
