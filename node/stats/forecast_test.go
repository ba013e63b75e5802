package stats

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scraped runs f with a value whose read takes 100 ms, and that is read ahead. The value is the
// time at which its read began.
func scraped(t *testing.T, f func(get func() (age, took time.Duration), reads func() int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began []time.Time
		s := newShared(5*time.Second, 10*time.Second, func(context.Context) (time.Time, error) {
			mu.Lock()
			began = append(began, time.Now())
			mu.Unlock()
			at := time.Now()
			time.Sleep(100 * time.Millisecond)
			return at, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		f(func() (age, took time.Duration) {
			asked := time.Now()
			at, err := s.get(ctx)
			require.NoError(t, err)
			return time.Since(at), time.Since(asked)
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(began)
		})
		cancel()
		running.Wait()
		for i := 1; i < len(began); i++ {
			assert.GreaterOrEqual(t, began[i].Sub(began[i-1]), 5*time.Second, "two reads in one period")
		}
	})
}

func TestAScraperDoesNotWait(t *testing.T) {
	for _, every := range []time.Duration{5 * time.Second, 5100 * time.Millisecond, 6 * time.Second, 15 * time.Second,
		time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			scraped(t, func(get func() (age, took time.Duration), reads func() int) {
				for i := range 20 {
					age, took := get()
					if i >= 3 {
						assert.LessOrEqual(t, took, 100*time.Millisecond, i)
						assert.LessOrEqual(t, age, 400*time.Millisecond, i)
						if every > 5500*time.Millisecond {
							assert.Zero(t, took, i)
						}
					}
					time.Sleep(every - took)
				}
				time.Sleep(time.Hour)
				assert.LessOrEqual(t, reads(), 21, "one for each caller, and one for a caller that did not come")
			})
		})
	}
}

func TestIrregularCallersAreNotExpected(t *testing.T) {
	scraped(t, func(get func() (age, took time.Duration), reads func() int) {
		for i, wait := range []time.Duration{10, 20, 15, 30, 60, 180, 180, 180} {
			get()
			time.Sleep(wait * time.Second)
			assert.Equal(t, i+1, reads())
		}
	})
}

func TestCallersThatShareAReadAreOne(t *testing.T) {
	scraped(t, func(get func() (age, took time.Duration), reads func() int) {
		for i := range 10 {
			_, first := get()
			time.Sleep(2 * time.Second)
			_, second := get()
			assert.Zero(t, second)
			if i >= 3 {
				assert.Zero(t, first, i)
			}
			time.Sleep(13*time.Second - first)
		}
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, reads(), 11)
	})
}
