package testenv

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the processor time that f takes in the goroutine of the caller. A test of the cost of a computation
// compares it with a limit: on a busy machine the time that passes is many times as long.
func CPUTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime(t)
	f()
	return threadTime(t) - began
}

func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		t.Fatalf("reading the processor time of a thread: %v", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
