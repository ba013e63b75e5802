package flow_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

func TestAfter(t *testing.T) {
	b := flow.Backoff{Min: time.Second, Max: 10 * time.Second}
	for failures, want := range []time.Duration{0, 1, 2, 4, 8, 10, 10} {
		assert.Equal(t, want*time.Second, b.After(failures), "after %d failures", failures)
	}
	assert.Zero(t, b.After(-1))
	assert.Equal(t, 10*time.Second, b.After(math.MaxInt), "no overflow, no long loop")
	assert.Equal(t, time.Second, flow.Backoff{Min: time.Second}.After(5), "a constant delay")
	assert.Equal(t, 2*time.Second, flow.Backoff{Min: 2 * time.Second, Max: time.Second}.After(3), "Max below Min")
	assert.Equal(t, time.Duration(math.MaxInt64), flow.Backoff{Min: 1, Max: math.MaxInt64}.After(100))
	assert.Zero(t, flow.Backoff{}.After(3))
}
