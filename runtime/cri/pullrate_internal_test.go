package cri

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPullRateLimits(t *testing.T) {
	for name, qps := range map[string]float64{"none": 0, "negative": -1, "not a number": math.NaN(), "infinite": math.Inf(1), "more than the clock shows": 1e10} {
		assert.Nil(t, newPullRate(qps, 1), name)
	}
	for name, tc := range map[string]struct {
		qps      float64
		burst    int
		interval time.Duration
	}{
		"usual":            {5, 10, 200 * time.Millisecond},
		"almost never":     {math.SmallestNonzeroFloat64, 10, maxPullInterval},
		"an endless burst": {1e-3, math.MaxInt, 1000 * time.Second},
		"both":             {1e-300, math.MaxInt, maxPullInterval},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPullRate(tc.qps, tc.burst)
			require.NotNil(t, p)
			assert.Equal(t, tc.interval, p.interval)
			assert.LessOrEqual(t, p.burst, tc.burst)
			span := time.Duration(p.burst) * p.interval
			require.Positive(t, span)
			assert.Equal(t, span, time.Duration(float64(p.burst)*float64(p.interval)).Round(time.Duration(1)), "it does not overflow")
			for range 3 {
				require.NoError(t, p.wait(t.Context()))
			}
			assert.Greater(t, p.burst, 2)
		})
	}
}
