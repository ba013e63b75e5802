package kubelet

import (
	"runtime"
	"runtime/debug"
	gometrics "runtime/metrics"
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

// What was garbage or free is returned to the system.
func TestReleaseMemory(t *testing.T) {
	held := func() uint64 {
		samples := []gometrics.Sample{{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"}}
		gometrics.Read(samples)
		return samples[0].Value.Uint64() + samples[1].Value.Uint64()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection that begins now would count it as live
	runtime.GC()
	garbage := make([]byte, 64<<20)
	runtime.KeepAlive(garbage)
	before := held()
	releaseMemory()
	assert.Less(t, held()+32<<20, before)
}
