package prober

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/flow/flowtest"
)

// A Metrics that panics does not end the process.
func TestMetricsThatPanic(t *testing.T) {
	flowtest.Guard(t, Metrics(struct{ Metrics }{}), newGuarded)
}
