package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/status"
)

// A sink that fails for all pods is tried with one of them every 2 to 3 s, and with each new status once. When it
// succeeds, all are delivered.
func TestBreaker(t *testing.T) {
	managed(t, status.Options{}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error { return errors.New("no connection") }
		const many = 50
		for i := range many {
			m.Set(named(types.UID(fmt.Sprint(i))), phased(v1.PodRunning, "1"))
		}
		time.Sleep(time.Minute)
		k.deliveries()
		time.Sleep(time.Minute)
		log := k.deliveries()
		assert.InDelta(t, 25, strings.Count(log, "Running"), 6)
		assert.NotContains(t, log, "TWICE")
		m.Set(named("7"), phased(v1.PodRunning, "2"))
		assert.Equal(t, "120 7 Running 2", k.deliveries())
		for i := range 3 { // each has a probe
			time.Sleep(time.Minute)
			if i == 1 {
				m.Forget("8")
			}
		}
		k.mu.Lock()
		k.answer = nil
		k.mu.Unlock()
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		for i := range many {
			if want := "1"; i != 8 {
				if i == 7 {
					want = "2"
				}
				assert.Equal(t, want, k.last[types.UID(fmt.Sprint(i))].Message, i)
			}
		}
		assert.Equal(t, many-1, m.Entries())
	})
}

// A sink that fails for some pods is not tried more often because it succeeds for others.
func TestBreakerOfASinkThatFailsForSome(t *testing.T) {
	managed(t, status.Options{}, func(m *status.Store, k *sink) {
		k.answer = func(_ context.Context, uid types.UID, _ v1.PodStatus) error {
			if uid == "good" {
				return nil
			}
			return errors.New("no connection")
		}
		m.Set(named("a"), phased(v1.PodRunning, ""))
		m.Set(named("b"), phased(v1.PodRunning, ""))
		for i := range 600 {
			m.Set(named("good"), phased(v1.PodRunning, fmt.Sprint(i)))
			time.Sleep(100 * time.Millisecond)
		}
		log := k.deliveries()
		assert.Equal(t, 600, strings.Count(log, "good"))
		assert.Less(t, strings.Count(log, " a ")+strings.Count(log, " b "), 80)
	})
}

// A request of the sink has a failed call repeated, but not sooner than 2 s after it began.
func TestRequestDuringABackoff(t *testing.T) {
	ks := &requesting{}
	managedWith(t, status.Options{RetryMin: time.Hour}, func(k *sink) status.Sink { ks.sink = k; return ks },
		func(m *status.Store, k *sink) {
			k.answer = func(context.Context, types.UID, v1.PodStatus) error { return errors.New("no connection") }
			m.Set(named("a"), phased(v1.PodRunning, ""))
			assert.Equal(t, "0 a Running", k.deliveries())
			for range 50 {
				ks.changed("a")
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, []string{"2", "4"}, seconds(k.deliveries()))
		})
}

// requesting is a sink with the requests of the test.
type requesting struct {
	*sink
	changed func(types.UID)
}

func (r *requesting) WatchReceiver(ctx context.Context, changed func(types.UID)) {
	r.changed = changed
	<-ctx.Done()
}
