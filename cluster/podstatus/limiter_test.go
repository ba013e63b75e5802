package podstatus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestNoLimit(t *testing.T) {
	l := newLimiter(-1, 1)
	for range 1000 {
		assert.NoError(t, l.wait(t.Context(), false))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, l.wait(ctx, true), context.Canceled)
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10, 5)
		var mu sync.Mutex
		var order []string
		begun := time.Now()
		request := func(ctx context.Context, name string, urgent bool) {
			go func() {
				err := l.wait(ctx, urgent)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name = "-" + name
				}
				order = append(order, fmt.Sprint(name, " ", time.Since(begun).Milliseconds()/100))
			}()
			synctest.Wait()
		}
		for i := range 5 {
			request(t.Context(), fmt.Sprint(i), false)
		}
		request(t.Context(), "a", false)
		ctx, cancel := context.WithCancel(t.Context())
		request(ctx, "given up", true)
		request(t.Context(), "b", false)
		request(t.Context(), "u", true)
		cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		slices.Sort(order[:5]) // at once
		assert.Equal(t, []string{"0 0", "1 0", "2 0", "3 0", "4 0", "-given up 0", "u 1", "a 2", "b 3"}, order)

		order, begun = nil, time.Now()
		time.Sleep(time.Hour) // saves 5 at most
		for i := range 7 {
			request(t.Context(), fmt.Sprint(i), false)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, order, 7)
		assert.Equal(t, []string{"5 36001", "6 36002"}, order[5:])
	})
}
