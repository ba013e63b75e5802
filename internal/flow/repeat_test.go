package flow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		assert.True(t, flow.Sleep(ctx, 40*time.Second))
		assert.False(t, flow.Sleep(ctx, 40*time.Second))
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := flow.Backoff{Min: time.Second, Max: time.Minute}
		var delays []time.Duration
		failed := func(err error, retryIn time.Duration) {
			assert.EqualError(t, err, "broken")
			delays = append(delays, retryIn)
		}
		runs := 0
		b.Repeat(t.Context(), func() error {
			switch runs++; runs {
			case 4:
				time.Sleep(time.Minute) // it has worked
			case 6:
				return nil
			}
			return errors.New("broken")
		}, failed)
		assert.Equal(t, []time.Duration{1e9, 2e9, 4e9, 1e9, 2e9}, delays)

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		delays = nil
		b.Repeat(ctx, func() error { return errors.New("broken") }, failed)
		assert.Len(t, delays, 2, "the context ended in the second")
		b.Repeat(ctx, func() error { return errors.New("broken") }, failed)
		assert.Len(t, delays, 2, "an error after the end is none")
	})
}
