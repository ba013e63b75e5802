package cond_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cond.Cond
		var n atomic.Int32
		c.Changed() // nobody waits
		for range 3 {
			go func() {
				time.Sleep(time.Minute)
				n.Add(1)
				c.Changed()
			}()
		}
		began := time.Now()
		require.NoError(t, c.Until(t.Context(), func() bool { return n.Load() == 3 }, nil))
		assert.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Until(ctx, func() bool { return false }, func() string { return "nothing" })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "condition not met: context deadline exceeded; there is: nothing")
		require.ErrorIs(t, c.Until(ctx, func() bool { return false }, nil), context.DeadlineExceeded)
	})
}
