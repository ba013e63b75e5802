package pleg

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHealthTellsTheCause(t *testing.T) {
	var h health
	assert.ErrorIs(t, h.check(time.Minute, time.Second), errNotRunning)
	h.begin()
	assert.ErrorIs(t, h.check(time.Minute, time.Second), errNoReply)
	cause := errors.New("cause")
	assert.True(t, h.failed(cause))
	assert.False(t, h.failed(cause))
	assert.ErrorIs(t, h.check(time.Minute, time.Second), cause)
	assert.True(t, h.succeeded(time.Second))
	assert.False(t, h.succeeded(time.Second))
	assert.NoError(t, h.check(time.Minute, time.Second))
	h.end()
	assert.ErrorIs(t, h.check(time.Minute, time.Second), errNotRunning)
}

func TestHealthCountsFromWhenTheListCallIsDue(t *testing.T) {
	for _, tc := range []struct {
		name  string
		wait  time.Duration // after the success
		calls time.Duration // when the next call begins, 0: never
		bad   time.Duration
	}{
		{"tight", time.Second, time.Second, 3 * time.Minute},
		{"sooner than tight", 0, time.Millisecond, 3 * time.Minute},
		{"wide, in time", 5 * time.Minute, 5 * time.Minute, 8*time.Minute - time.Second},
		{"wide, early", 5 * time.Minute, time.Minute, 4*time.Minute - time.Second},
		{"wide, never", 5 * time.Minute, 0, 8*time.Minute - time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h health
				h.begin()
				h.succeeded(tc.wait)
				time.Sleep(tc.calls)
				if tc.calls > 0 {
					h.called()
				}
				time.Sleep(tc.bad - tc.calls)
				assert.NoError(t, h.check(3*time.Minute, time.Second))
				time.Sleep(time.Millisecond)
				assert.ErrorIs(t, h.check(3*time.Minute, time.Second), errNoReply)
			})
		})
	}
}
