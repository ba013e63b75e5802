package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		longer, stop := linger(ctx)
		began := time.Now()
		cancel()
		<-longer.Done()
		assert.Equal(t, lingering, time.Since(began))
		stop()

		// Stopped before and while it lingers, it leaves nothing behind.
		ctx, cancel = context.WithCancel(t.Context())
		longer, stop = linger(ctx)
		stop()
		cancel()
		assert.ErrorIs(t, longer.Err(), context.Canceled)
		ctx, cancel = context.WithCancel(t.Context())
		longer, stop = linger(ctx)
		cancel()
		synctest.Wait()
		require.NoError(t, longer.Err())
		stop()
		assert.ErrorIs(t, longer.Err(), context.Canceled)
		assert.Equal(t, lingering, time.Since(began))
	})
}
