package oom

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What is kept of containers and subjects is bounded.
func TestBounds(t *testing.T) {
	var c containerKills
	var l limiter
	now := time.Now()
	for i := range 10 * maxContainerKills {
		c.add(strconv.Itoa(i), Kill{PID: i}, now, false)
		l.allow(strconv.Itoa(i), now)
		now = now.Add(time.Second)
	}
	assert.Len(t, c.byID, maxContainerKills)
	assert.Len(t, c.order, maxContainerKills)
	assert.Contains(t, c.byID, strconv.Itoa(10*maxContainerKills-1))
	assert.LessOrEqual(t, len(l.bySubject), maxSubjects+int(burst*refill/time.Second))

	c.add("again", Kill{PID: 1}, now, false)
	c.add("again", Kill{PID: 2}, now.Add(time.Second), false)
	first, ok := c.reported("again")
	assert.True(t, ok)
	assert.Equal(t, 1, first.PID)
	_, ok = c.reported("again")
	assert.False(t, ok)
	assert.Equal(t, now.Add(time.Second), c.byID["again"].last)
}

func TestLimiter(t *testing.T) {
	var l limiter
	now := time.Now()
	allowed := func(n int) (yes int) {
		for range n {
			if _, ok := l.allow("a", now); ok {
				yes++
			}
		}
		return yes
	}
	assert.Equal(t, burst, allowed(20))
	now = now.Add(2 * refill)
	left, ok := l.allow("a", now)
	assert.True(t, ok)
	assert.Equal(t, 15, left)
	assert.Equal(t, 1, allowed(20))
	now = now.Add(-time.Hour) // the clock was set back
	assert.Zero(t, allowed(1))
}
