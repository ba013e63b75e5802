package flow_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

func TestOrderWithCallsOfTheOwner(t *testing.T) {
	var (
		mu  sync.Mutex
		q   flow.Queue
		got []int
		n   int
	)
	var transition func(follow bool)
	transition = func(follow bool) {
		mu.Lock()
		n++
		id := n
		q.Add(func() {
			got = append(got, id) // one at a time: -race sees to it
			if follow {
				transition(false)
			}
		})
		mu.Unlock()
		q.Run()
	}
	transition(true)
	assert.Equal(t, []int{1, 2}, got)

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				transition(true)
			}
		})
	}
	all.Wait()
	assert.IsIncreasing(t, got)
	assert.Len(t, got, n)
}

func TestAPanicKeepsTheOthers(t *testing.T) {
	var q flow.Queue
	var got []int
	q.Add(func() { got = append(got, 1) })
	q.Add(func() { panic("broken") })
	q.Add(func() { got = append(got, 2) })
	assert.Panics(t, q.Run)
	q.Add(func() { got = append(got, 3) })
	q.Run()
	assert.Equal(t, []int{1, 2, 3}, got)
}
