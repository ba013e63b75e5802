package podworkers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestResyncsFallTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "interval"))
		now := time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "now"))
		p := policy{resyncInterval: interval}
		wait := p.resync(now, rapid.Float64Range(0, 1).Draw(t, "jitter"))
		grid := interval / 12
		assert.GreaterOrEqual(t, wait, interval)
		assert.LessOrEqual(t, wait, interval+interval/2+grid)
		if grid > 0 {
			assert.Zero(t, time.Duration(now.Add(wait).UnixNano())%grid)
		}
	})
	assert.Equal(t, forever, policy{resyncInterval: forever}.resync(time.Now(), 1))
}
