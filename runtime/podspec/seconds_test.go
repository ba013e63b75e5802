package podspec_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestSeconds(t *testing.T) {
	assert.Equal(t, 30*time.Second, podspec.Seconds(30))
	assert.Zero(t, podspec.Seconds(0))
	assert.Equal(t, -30*time.Second, podspec.Seconds(-30))
	for _, n := range []int64{podspec.MaxSeconds, podspec.MaxSeconds + 1, 9_223_372_037,
		18_446_744_075, math.MaxInt64} {
		d := podspec.Seconds(n)
		assert.Greater(t, d, 146*365*24*time.Hour)
		assert.Greater(t, d+time.Minute, d, "there is room for a sum")
		assert.Greater(t, time.Until(time.Now().Add(d)), 146*365*24*time.Hour)
		assert.Less(t, podspec.Seconds(-n), -146*365*24*time.Hour)
	}
}
