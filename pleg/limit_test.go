package pleg

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// service is a runtime with processors that share the work of the inspections
// under way, and a part of each that only waits.
type service struct {
	processors int
	work, wait time.Duration
	// slowed is the time from which work takes ten times as long.
	slowed time.Duration
	// spread makes an inspection take up to that many times as long.
	spread float64
}

// burst runs n inspections through inspections, in small steps of time, and returns
// how long all took, and how many ran side by side at most and at last while
// others waited.
func (s service) burst(n, most int) (took time.Duration, highest, last int) {
	const step = 100 * time.Microsecond
	rnd := rand.New(rand.NewPCG(1, 2))
	in := inspections{limit: limit{max: most}}
	for range n {
		in.request(&record{state: requested, wanted: true, waiting: []Event{{Type: ContainerDied}}})
	}
	type call struct {
		*inspection
		work, wait time.Duration
	}
	var calls []*call
	epoch := time.Now()
	var clock time.Duration
	for done := 0; done < n; clock += step {
		now := epoch.Add(clock)
		for i := in.next(now); i != nil; i = in.next(now) {
			factor := 1 + rnd.Float64()*s.spread
			calls = append(calls, &call{i, time.Duration(float64(s.work) * factor), s.wait})
		}
		if len(in.queue) > 0 {
			highest, last = max(highest, len(calls)), len(calls)
		}
		share := time.Duration(float64(step) * min(1, float64(s.processors)/float64(len(calls))))
		if s.slowed > 0 && clock >= s.slowed {
			share /= 10
		}
		var left []*call
		for _, c := range calls {
			if c.wait > 0 {
				c.wait -= step
			} else {
				c.work -= share
			}
			if c.wait <= 0 && c.work <= 0 {
				in.ended(c.inspection, now)
				done++
			} else {
				left = append(left, c)
			}
		}
		calls = left
	}
	return clock, highest, last
}

func TestLimit(t *testing.T) {
	const work = 6 * time.Millisecond
	for _, test := range []struct {
		name    string
		service service
		// faster than one by one, at least.
		faster float64
		// most and last bound how many are side by side, at all and in the end.
		most, last int
	}{
		{"only waits", service{processors: 1, wait: work}, 40, 64, 64},
		{"one processor", service{processors: 1, work: work}, 0.99, 6, 6},
		{"two processors", service{processors: 2, work: work}, 1.9, 6, 6},
		{"all kinds of pods", service{processors: 2, work: work, spread: 4}, 1.9, 10, 10},
		{"32 processors", service{processors: 32, work: work}, 25, 48, 48},
		{"slows down", service{processors: 16, work: work, slowed: 50 * time.Millisecond}, 15, 30, 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			took, most, last := test.service.burst(1000, 64)
			single, _, _ := test.service.burst(1000, 1)
			assert.Greater(t, float64(single)/float64(took), test.faster)
			assert.LessOrEqual(t, most, test.most)
			assert.LessOrEqual(t, last, test.last)
		})
	}
}

func TestLimitGivesWay(t *testing.T) {
	l := limit{max: 64}
	round := func(took time.Duration) int {
		for range l.value() {
			l.measure(took)
		}
		return l.value()
	}
	assert.Equal(t, 4, l.value())
	assert.Equal(t, 2, (&limit{max: 2}).value(), "never above max")
	for _, step := range []struct {
		took time.Duration
		want int
	}{
		{10 * time.Millisecond, 6},
		{11 * time.Millisecond, 9},
		{16 * time.Millisecond, 9},
		{30 * time.Millisecond, 4}, // others have come
		{30 * time.Millisecond, 2},
		{30 * time.Millisecond, 1},
		{30 * time.Millisecond, 2}, // it was not us
		{30 * time.Millisecond, 3},
		{10 * time.Millisecond, 5}, // they are gone
	} {
		assert.Equal(t, step.want, round(step.took))
	}
	l.reset()
	assert.Equal(t, 4, l.value())
}
