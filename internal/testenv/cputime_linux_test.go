package testenv

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// compute takes that much processor time in the goroutine of the caller.
func compute(t *testing.T, d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for began := threadTime(t); threadTime(t)-began < d; {
	}
}

// Others take no part of it, however long they compute meanwhile.
func TestCPUTime(t *testing.T) {
	const d = 100 * time.Millisecond
	assert.GreaterOrEqual(t, CPUTime(t, func() { compute(t, d) }), d)
	assert.Less(t, CPUTime(t, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			compute(t, d)
		}()
		<-done
	}), d)
}
