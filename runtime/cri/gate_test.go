package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGateLetsTheUrgentGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		leave, err := g.enter(t.Context(), newSandbox)
		require.NoError(t, err)
		var order []string
		wait := func(name string, u urgency) {
			go func() {
				leave, err := g.enter(t.Context(), u)
				if assert.NoError(t, err) {
					order = append(order, name)
					leave()
				}
			}()
			synctest.Wait()
		}
		wait("first sandbox", newSandbox)
		wait("second sandbox", newSandbox)
		wait("container", inSandbox)
		leave()
		leave() // once more changes nothing
		synctest.Wait()
		assert.Equal(t, []string{"container", "first sandbox", "second sandbox"}, order)
		assert.Equal(t, 1, g.free)
	})
}

func TestGateDoesNotWaitForWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		hung, err := g.enter(t.Context(), newSandbox)
		require.NoError(t, err)
		began := time.Now()
		leave, err := g.enter(t.Context(), newSandbox)
		require.NoError(t, err)
		assert.Equal(t, maxHold, time.Since(began))
		leave()
		hung()
		assert.Equal(t, 1, g.free, "the place is given back once")
	})
}

func TestGateIsLeftByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		leave, err := g.enter(t.Context(), newSandbox)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.enter(ctx, newSandbox)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		leave()
		assert.Equal(t, 1, g.free)
		assert.Empty(t, g.queues[newSandbox])
	})
}
