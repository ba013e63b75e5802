package status_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// obedient hangs until its context ends.
func obedient(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func hangs(uid types.UID) bool { return strings.HasPrefix(string(uid), "hang") }

// Deliveries that hang do not keep those of other pods from being made.
func TestHangingDeliveriesDoNotStopOthers(t *testing.T) {
	for _, tc := range []struct {
		name string
		hang func(ctx context.Context, release <-chan struct{}) error
		// cycle is the time from one call for a pod that hangs to the next.
		calls int
	}{
		{"until the deadline", func(ctx context.Context, _ <-chan struct{}) error { return obedient(ctx) }, 100},
		{"for ever", func(_ context.Context, release <-chan struct{}) error { <-release; return nil }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			managed(t, status.Options{}, func(m *status.Store, k *sink) {
				release := make(chan struct{})
				defer close(release)
				k.answer = func(ctx context.Context, uid types.UID, _ v1.PodStatus) error {
					if hangs(uid) {
						return tc.hang(ctx, release)
					}
					return nil
				}
				for i := range 40 {
					m.Set(named(types.UID(fmt.Sprint("hang", i))), phased(v1.PodRunning, ""))
				}
				synctest.Wait()
				m.Set(named("a"), phased(v1.PodPending, ""))
				time.Sleep(4 * time.Minute)
				assert.Contains(t, k.deliveries(), "a Pending")

				// Once it is known which pods hang, others do not wait at all.
				for i := range 20 {
					m.Set(named("a"), phased(v1.PodRunning, fmt.Sprint(i)))
					assert.Contains(t, k.deliveries(), fmt.Sprint(" a Running ", i))
					time.Sleep(17 * time.Second)
				}
				time.Sleep(5 * time.Hour)
				log := k.deliveries()
				assert.NotContains(t, log, "TWICE AT ONCE")
				if tc.calls == 1 {
					assert.Empty(t, log, "a pod that hangs waits")
				} else {
					assert.Greater(t, strings.Count(log, "hang"), 40*tc.calls/2,
						"a delivery that exceeded its deadline is repeated")
				}
			})
		})
	}
}

// The pod of a delivery that hangs waits for it, and then goes on.
func TestHangingDeliveryReturns(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	logs := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	logged := func(text string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(strings.Join(lines, "\n"), text)
	}
	measured := &metrics{}
	opts := status.Options{Concurrency: 1, DeliveryTimeout: 10 * time.Second, Observer: runtime.Observer{Logger: logs,
		Measure: measured.Measure}}
	managed(t, opts, func(m *status.Store, k *sink) {
		release := make(chan error)
		k.answer = func(_ context.Context, uid types.UID, _ v1.PodStatus) error {
			if hangs(uid) {
				return <-release
			}
			return nil
		}
		m.Set(named("hangs"), phased(v1.PodRunning, "1"))
		synctest.Wait()
		m.Set(named("hangs"), phased(v1.PodRunning, "2"))
		m.Set(named("a"), phased(v1.PodRunning, ""))
		time.Sleep(10 * time.Second)
		require.NoError(t, m.Healthy())
		assert.Zero(t, logged("Delivery hangs"))
		time.Sleep(time.Second)
		assert.Equal(t, "0 hangs Running 1\n11 a Running", k.deliveries())
		require.EqualError(t, m.Healthy(), "status: deliveries hang, the sink has not returned within 10s: pod "+
			"default/hangs(hangs) since 2000-01-01T00:00:00Z")
		assert.Equal(t, 1, logged("Delivery hangs"))
		assert.Equal(t, 1, logged("default/hangs"))
		assert.Equal(t, 1, measured.now().hanging)

		time.Sleep(time.Hour)
		assert.Empty(t, k.deliveries())
		release <- nil
		assert.Equal(t, "3611 hangs Running 2", k.deliveries())
		require.NoError(t, m.Healthy())
		assert.Zero(t, measured.now().hanging)
		assert.Equal(t, 1, logged("Delivery that hung has returned"))

		time.Sleep(time.Minute) // it hangs again
		release <- errors.New("no connection")
		assert.Empty(t, k.deliveries())
		time.Sleep(time.Second)
		assert.Equal(t, "3671.25 hangs Running 2", k.deliveries())
		release <- nil
	})
}

func TestHealthyNamesFew(t *testing.T) {
	managed(t, status.Options{Concurrency: 12, DeliveryTimeout: time.Second}, func(m *status.Store, k *sink) {
		release := make(chan struct{})
		defer close(release)
		k.answer = func(context.Context, types.UID, v1.PodStatus) error { <-release; return nil }
		for i := range 12 {
			m.Set(named(types.UID(fmt.Sprintf("%02d", i))), phased(v1.PodRunning, ""))
		}
		time.Sleep(3 * time.Second)
		err := m.Healthy()
		require.ErrorContains(t, err, "pod default/00(00) since 2000-01-01T00:00:00Z, pod default/01(01)")
		require.ErrorContains(t, err, "pod default/09(09) since 2000-01-01T00:00:00Z, 2 more")
	})
}

// A sink that panics fails.
func TestSinkPanics(t *testing.T) {
	managed(t, status.Options{RetryMin: time.Second}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			if time.Since(k.start) == 0 {
				panic("nil map")
			}
			return nil
		}
		m.Set(named("a"), phased(v1.PodRunning, ""))
		time.Sleep(time.Minute)
		assert.Equal(t, "0 a Running\n1 a Running", k.deliveries())
	})
}

// metrics keeps the latest values.
type metrics struct {
	mu        sync.Mutex
	latencies []time.Duration
	failed    int
	hanging   int
	starts    []time.Duration
	delivered []string
}

// now returns the values, when the manager is idle.
func (m *metrics) now() *metrics {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return &metrics{latencies: slices.Clone(m.latencies), failed: m.failed, hanging: m.hanging,
		starts: slices.Clone(m.starts), delivered: slices.Clone(m.delivered)}
}

func (m *metrics) Measure(v runtime.Measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch v := v.(type) {
	case status.Delivered:
		m.latencies = append(m.latencies, v.Latency)
	case status.StartDelivered:
		m.delivered = append(m.delivered, v.Pod.Name)
	case status.PodStarted:
		m.starts = append(m.starts, v.Took)
	case status.DeliveryFailed:
		m.failed++
	case status.DeliveriesHanging:
		m.hanging = v.Calls
	}
}

func TestMetrics(t *testing.T) {
	measured := &metrics{}
	managed(t, status.Options{Observer: runtime.Observer{Measure: measured.Measure, Logger: logr.Discard()},
		RetryMin: time.Second},
		func(m *status.Store, k *sink) {
			k.answer = func(context.Context, types.UID, v1.PodStatus) error {
				time.Sleep(2 * time.Second)
				if time.Since(k.start) == 2*time.Second {
					return errors.New("no connection")
				}
				return nil
			}
			m.Set(named("a"), phased(v1.PodRunning, "1")) // delivered from 3 s to 5 s
			time.Sleep(4 * time.Second)
			m.Set(named("a"), phased(v1.PodRunning, "2")) // delivered from 5 s to 7 s
			time.Sleep(time.Minute)
			assert.Equal(t, "0 a Running 1\n3 a Running 1\n5 a Running 2", k.deliveries())
			assert.Equal(t, []time.Duration{5 * time.Second, 3 * time.Second}, measured.now().latencies)
			assert.Equal(t, 1, measured.now().failed)
		})
}

func TestPodStarted(t *testing.T) {
	measured := &metrics{}
	managed(t, status.Options{Observer: runtime.Observer{Measure: measured.Measure, Logger: logr.Discard()}},
		func(m *status.Store, _ *sink) {
			m.Set(named("ran before"), phased(v1.PodRunning, "1"))
			m.Set(named("a"), phased(v1.PodPending, "1"))
			time.Sleep(2 * time.Second)
			m.Set(named("a"), phased(v1.PodPending, "2"))
			time.Sleep(time.Second)
			m.Set(named("a"), phased(v1.PodRunning, "1"))
			m.Set(named("a"), phased(v1.PodRunning, "2"))
			assert.Equal(t, []time.Duration{3 * time.Second}, measured.now().starts)
		})
}

// A start is measured when a status with all containers running was delivered: once, and neither of a static pod nor of
// one that had a status before.
func TestStartsAreMeasuredWhenDelivered(t *testing.T) {
	measured := &metrics{}
	managed(t, status.Options{Observer: runtime.Observer{Measure: measured.Measure, Logger: logr.Discard()}},
		func(m *status.Store, _ *sink) {
			web, before, static := named("web"), named("before"), named("static")
			before.Status.StartTime = &metav1.Time{Time: time.Now()}
			static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
			for _, pod := range []*v1.Pod{web, before, static} {
				s := phased(v1.PodPending, "")
				s.ContainerStatuses = []v1.ContainerStatus{{}}
				m.Set(pod, s)
			}
			assert.Empty(t, measured.now().delivered)
			for _, message := range []string{"", "again"} {
				for _, pod := range []*v1.Pod{web, before, static} {
					s := phased(v1.PodRunning, message)
					s.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
						Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
					m.Set(pod, s)
				}
				assert.Equal(t, []string{"web"}, measured.now().delivered)
				time.Sleep(time.Second)
			}
		})
}
