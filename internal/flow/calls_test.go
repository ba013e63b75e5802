package flow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// A call that hangs holds those for its key only, and these until their context ends.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls flow.Calls
		failed := errors.New("failed")
		answer := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		time := make(chan error)
		go func() {
			time <- calls.Do(ctx, "a", func(context.Context) error { <-answer; return failed })
		}()
		synctest.Wait()
		assert.True(t, calls.UnderWay("a"))
		assert.False(t, calls.UnderWay("b"))
		require.NoError(t, calls.Do(ctx, "b", func(context.Context) error { return nil }))
		cancel(gaveUp)
		require.ErrorIs(t, <-time, gaveUp)

		err := calls.Do(ctx, "a", func(context.Context) error { panic("called") })
		require.ErrorIs(t, err, flow.ErrUnderWay)
		require.ErrorIs(t, err, gaveUp)
		go func() { time <- calls.Do(t.Context(), "a", func(context.Context) error { return failed }) }()
		synctest.Wait()
		close(answer)
		require.ErrorIs(t, <-time, failed)
		synctest.Wait()
		assert.False(t, calls.UnderWay("a"))
	})
}
