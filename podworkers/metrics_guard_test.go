package podworkers

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/guard/guardtest"
)

// A Metrics that panics does not end the process.
func TestMetricsThatPanic(t *testing.T) {
	guardtest.Test(t, Metrics(struct{ Metrics }{}), newGuarded)
}
