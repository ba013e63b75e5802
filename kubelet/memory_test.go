package kubelet

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Memory is released once after each rush, and not while things happen.
func TestMemoryIsReleasedAfterARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		r := newReleaser(func() { released.Add(1) })
		happen := func(times int) {
			for range times {
				r.noted()
				time.Sleep(restAfter - time.Second)
			}
			synctest.Wait()
		}
		idle := func() {
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		happen(5)
		assert.Zero(t, released.Load())
		idle()
		assert.Equal(t, 1, int(released.Load()))
		happen(3)
		idle()
		assert.Equal(t, 2, int(released.Load()))
		r.noted()
		r.stop()
		idle()
		assert.Equal(t, 2, int(released.Load()))
	})
}
