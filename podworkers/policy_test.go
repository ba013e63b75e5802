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
		wait := p.resync(now, rapid.Float64Range(0, 1).Draw(t, "jitter"), 0)
		grid := interval / 12
		assert.GreaterOrEqual(t, wait, interval)
		assert.LessOrEqual(t, wait, interval+interval/2+grid)
		if grid > 0 {
			assert.Zero(t, time.Duration(now.Add(wait).UnixNano())%grid)
		}
	})
	assert.Equal(t, forever, policy{resyncInterval: forever}.resync(time.Now(), 1, 9))
}

func TestResyncsAtRestBecomeRarer(t *testing.T) {
	p, now := policy{resyncInterval: time.Minute}, time.Unix(0, 0)
	wait := func(s schedule) time.Duration { return s.wake.Sub(now) }
	atRest := returned{Result: Result{AtRest: true}}
	var s schedule
	for _, minutes := range []time.Duration{1, 2, 4, 8, 8} {
		s = s.taken().synced(p, now, atRest)
		assert.Equal(t, minutes*time.Minute, wait(s))
	}
	long := policy{resyncInterval: forever / 3}
	assert.Positive(t, long.resync(now, 1, 9), "a long time does not overflow")
	s = s.update(Update{Type: Sync}).taken().synced(p, now, atRest)
	assert.Equal(t, time.Minute, wait(s), "something has happened")
	s = s.taken().synced(p, now, atRest).taken().synced(p, now, returned{})
	assert.Equal(t, time.Minute, wait(s), "it is not at rest any more")
}
