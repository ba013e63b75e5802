package main

import (
	"runtime"
	gometrics "runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Memory is released once after each rush, and not while things happen.
func TestMemoryIsReleasedAfterARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := 0
		r := newReleaser(func() { released++ })
		happen := func(times int) {
			for range times {
				r.noted()
				time.Sleep(restAfter - time.Second)
			}
			synctest.Wait()
		}
		happen(5)
		assert.Zero(t, released)
		time.Sleep(time.Hour)
		assert.Equal(t, 1, released)
		happen(3)
		time.Sleep(time.Hour)
		assert.Equal(t, 2, released)
		r.noted()
		r.stop()
		time.Sleep(time.Hour)
		assert.Equal(t, 2, released)
	})
}

// What was garbage or free is returned to the system.
func TestReleaseMemory(t *testing.T) {
	held := func() uint64 {
		samples := []gometrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
		gometrics.Read(samples)
		return samples[0].Value.Uint64() + samples[1].Value.Uint64()
	}
	garbage := make([]byte, 64<<20)
	runtime.KeepAlive(garbage)
	before := held()
	releaseMemory()
	assert.Less(t, held()+32<<20, before)
}
