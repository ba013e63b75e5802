//go:build !linux

package testenv

import (
	"testing"
	"time"
)

// CPUTime returns the time that passes while f runs: not all systems have the processor time of a thread.
func CPUTime(_ testing.TB, f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
