package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// sink records deliveries as "<second> <pod> <phase> <message>" and answers as the
// test says.
type sink struct {
	status.SinkBase
	mu     sync.Mutex
	start  time.Time
	log    []string
	answer func(ctx context.Context, uid types.UID, s v1.PodStatus) error
	busy   map[types.UID]bool
	most   int
	last   map[types.UID]v1.PodStatus
}

func (k *sink) Deliver(ctx context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	return status.Result{}, k.record(ctx, pod.UID, string(s.Phase)+" "+s.Message, s)
}

func (k *sink) record(ctx context.Context, uid types.UID, what string, s v1.PodStatus) error {
	k.mu.Lock()
	if k.busy[uid] {
		k.log = append(k.log, "TWICE AT ONCE")
	}
	k.busy[uid] = true
	k.most = max(k.most, len(k.busy))
	k.log = append(k.log, strings.TrimSpace(fmt.Sprintf("%v %s %s", time.Since(k.start).Seconds(), uid, what)))
	f := k.answer
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.busy, uid)
	}()
	if f != nil {
		if err := f(ctx, uid, s); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last[uid] = s
	return nil
}

func (k *sink) deliveries() string {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.log, "\n")
	k.log = nil
	return out
}

// managed runs f in a bubble beside a running manager.
func managed(t *testing.T, opts status.Options, f func(m *status.Store, k *sink)) {
	t.Helper()
	managedWith(t, opts, func(k *sink) status.Sink { return k }, f)
}

func managedWith(t *testing.T, opts status.Options, wrap func(*sink) status.Sink, f func(m *status.Store, k *sink)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &sink{start: time.Now(), busy: map[types.UID]bool{}, last: map[types.UID]v1.PodStatus{}}
		opts.Sink = wrap(k)
		m, err := status.New(opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
		f(m, k)
		cancel()
		wg.Wait()
	})
}

// waiting is a sink that does not deliver a Pending status before it is 10 seconds old.
type waiting struct {
	*sink
	since time.Time
}

func (k *waiting) Deliver(ctx context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	result, err := k.sink.Deliver(ctx, pod, s)
	if s.Phase == v1.PodPending && err == nil {
		result.Later = max(0, 10*time.Second-time.Since(k.since))
	}
	return result, err
}

// A status with which the sink waits is delivered when the sink says so, or when it changes.
// Only then it counts as delivered, with the time since the change.
func TestDeliversLater(t *testing.T) {
	measured := &metrics{}
	wrap := func(k *sink) status.Sink { return &waiting{k, time.Now()} }
	managedWith(t, status.Options{Observer: runtime.Observer{Measure: measured.Measure}}, wrap,
		func(m *status.Store, k *sink) {
			m.Set(named("a"), phased(v1.PodPending, ""))
			m.Set(named("b"), phased(v1.PodPending, ""))
			assert.ElementsMatch(t, []string{"0 a Pending", "0 b Pending"}, strings.Split(k.deliveries(), "\n"))
			assert.Empty(t, measured.now().latencies)
			time.Sleep(4 * time.Second)
			m.Set(named("a"), phased(v1.PodRunning, ""))
			assert.Equal(t, "4 a Running", k.deliveries())
			assert.Equal(t, []time.Duration{4 * time.Second}, measured.now().latencies)
			time.Sleep(time.Minute)
			assert.Equal(t, "10 b Pending", k.deliveries())
			assert.Equal(t, []time.Duration{4 * time.Second, 10 * time.Second}, measured.now().latencies)
		})
	managedWith(t, status.Options{}, wrap, func(m *status.Store, k *sink) {
		m.Set(named("a"), phased(v1.PodPending, ""))
		k.deliveries()
		m.Forget("a")
		assert.Equal(t, "0 a Pending", k.deliveries())
		time.Sleep(time.Minute)
		assert.Empty(t, k.deliveries(), "the last status of a pod that is gone is in PodGone")
		assert.Zero(t, m.Entries())
	})
}

func named(uid types.UID) *v1.Pod {
	pod := podOf(v1.RestartPolicyAlways, "app")
	pod.UID, pod.Name = uid, string(uid)
	return pod
}

func phased(p v1.PodPhase, message string) v1.PodStatus {
	return v1.PodStatus{Phase: p, Message: message}
}

func TestDeliversEachChangeOnce(t *testing.T) {
	managed(t, status.Options{}, func(m *status.Store, k *sink) {
		m.Set(named("a"), phased(v1.PodPending, ""))
		assert.Equal(t, "0 a Pending", k.deliveries())
		m.Set(named("a"), phased(v1.PodPending, ""))
		assert.Empty(t, k.deliveries())
		m.Set(named("a"), phased(v1.PodRunning, ""))
		m.Set(named("b"), phased(v1.PodPending, ""))
		assert.ElementsMatch(t, []string{"0 a Running", "0 b Pending"}, strings.Split(k.deliveries(), "\n"))
		s, ok := m.Get("a")
		assert.True(t, ok)
		assert.Equal(t, v1.PodRunning, s.Phase)
		_, ok = m.Get("c")
		assert.False(t, ok)
	})
}

func TestLatestWinsWhileADeliveryIsUnderWay(t *testing.T) {
	managed(t, status.Options{}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			time.Sleep(10 * time.Second)
			return nil
		}
		for i := range 5 {
			m.Set(named("a"), phased(v1.PodRunning, fmt.Sprint(i)))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		assert.Equal(t, "0 a Running 0\n10 a Running 4", k.deliveries())
	})
}

func TestPodsAreDeliveredSideBySide(t *testing.T) {
	managed(t, status.Options{Concurrency: 3}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			time.Sleep(time.Second)
			return nil
		}
		for i := range 7 {
			m.Set(named(types.UID(fmt.Sprint(i))), phased(v1.PodRunning, ""))
		}
		time.Sleep(2500 * time.Millisecond)
		assert.Equal(t, 7, strings.Count(k.deliveries(), "Running"))
		assert.Equal(t, 3, k.most)
	})
}

func TestFailedDeliveriesAreRepeated(t *testing.T) {
	managed(t, status.Options{RetryMin: time.Second, RetryMax: 3 * time.Second}, func(m *status.Store, k *sink) {
		k.answer = func(_ context.Context, uid types.UID, _ v1.PodStatus) error {
			if uid == "a" && time.Since(k.start) < 8*time.Second {
				return errors.New("no connection")
			}
			return nil
		}
		m.Set(named("a"), phased(v1.PodPending, ""))
		synctest.Wait()
		m.Set(named("b"), phased(v1.PodPending, ""))
		time.Sleep(4 * time.Second)
		assert.Equal(t, "0 a Pending\n0 b Pending\n1 a Pending\n3 a Pending", k.deliveries())
		m.Set(named("a"), phased(v1.PodRunning, "")) // takes the place of the other, at its time
		time.Sleep(time.Hour)
		assert.Equal(t, "6 a Running\n9 a Running", k.deliveries())

		k.answer = func(context.Context, types.UID, v1.PodStatus) error { return fmt.Errorf("a: %w", status.ErrGone) }
		m.Set(named("a"), phased(v1.PodRunning, "gone"))
		time.Sleep(time.Hour)
		assert.Equal(t, "3604 a Running gone", k.deliveries())
	})
}

func TestForget(t *testing.T) {
	managed(t, status.Options{RetryMin: time.Second}, func(m *status.Store, k *sink) {
		broken := errors.New("no connection")
		k.answer = func(context.Context, types.UID, v1.PodStatus) error { return broken }
		m.Set(named("a"), phased(v1.PodRunning, ""))
		m.Set(named("b"), phased(v1.PodRunning, ""))
		time.Sleep(500 * time.Millisecond)
		k.deliveries()
		m.Prune(func(uid types.UID) bool { return uid == "b" })
		_, ok := m.Get("a")
		assert.False(t, ok)
		_, ok = m.Get("b")
		assert.True(t, ok)
		m.Forget("b")
		m.Forget("never seen")
		time.Sleep(time.Hour)
		log := k.deliveries()
		assert.Equal(t, 1, strings.Count(log, "a Running"), "once more, then no more: %s", log)
		assert.Equal(t, 1, strings.Count(log, "b Running"), "once more, then no more: %s", log)
		assert.Zero(t, m.Entries())

		// The same UID may come again, and starts from nothing.
		broken = nil
		m.Set(named("a"), phased(v1.PodPending, ""))
		assert.Contains(t, k.deliveries(), "a Pending")
	})
}

func TestBackoff(t *testing.T) {
	managed(t, status.Options{RetryMin: time.Second, RetryMax: 5 * time.Second}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error { return errors.New("no connection") }
		m.Set(named("a"), phased(v1.PodRunning, ""))
		time.Sleep(20 * time.Second)
		assert.Equal(t, []string{"0", "1", "3", "7", "12", "17"}, seconds(k.deliveries()),
			"1, 2, 4, 5 and 5 seconds later")
	})
}

// seconds returns the times of deliveries.
func seconds(log string) (out []string) {
	for line := range strings.SplitSeq(log, "\n") {
		out = append(out, strings.Fields(line)[0])
	}
	return out
}

func TestRunEndsWithItsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		k := &sink{busy: map[types.UID]bool{}, last: map[types.UID]v1.PodStatus{},
			answer: func(ctx context.Context, _ types.UID, _ v1.PodStatus) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended = true
				return ctx.Err()
			}}
		m, err := status.New(status.Options{Sink: k})
		require.NoError(t, err)
		m.Set(named("a"), phased(v1.PodRunning, ""))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		assert.NoError(t, m.Run(ctx))
		assert.True(t, ended)
		assert.ErrorIs(t, m.Run(ctx), runtime.ErrAlreadyRunning)
	})
}

// Whatever a sink does, once it is well again it has the latest of every pod, and
// never had two deliveries of one pod at once.
func TestNoneIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		managed(t, status.Options{Concurrency: rapid.IntRange(1, 3).Draw(rt, "concurrency")},
			func(m *status.Store, k *sink) {
				well := false
				delays := rapid.SliceOfN(rapid.IntRange(0, 3000), 20, 20).Draw(rt, "delays")
				fails := rapid.SliceOfN(rapid.Bool(), 20, 20).Draw(rt, "fails")
				n := 0
				k.answer = func(context.Context, types.UID, v1.PodStatus) error {
					k.mu.Lock()
					i := n % 20
					n++
					ok := well
					k.mu.Unlock()
					time.Sleep(time.Duration(delays[i]) * time.Millisecond)
					if fails[i] && !ok {
						return errors.New("no connection")
					}
					return nil
				}
				uids := []types.UID{"a", "b", "c", "d"}
				for i := range rapid.IntRange(1, 20).Draw(rt, "updates") {
					uid := rapid.SampledFrom(uids).Draw(rt, "pod")
					m.Set(named(uid), phased(v1.PodRunning, fmt.Sprint(i+1)))
					time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "pause")) * time.Millisecond)
				}
				k.mu.Lock()
				well = true
				k.mu.Unlock()
				time.Sleep(time.Hour)
				log := k.deliveries()
				if strings.Contains(log, "TWICE") {
					rt.Fatalf("a pod was delivered twice at once:\n%s", log)
				}
				for _, uid := range uids {
					want, _ := m.Get(uid)
					if got := k.last[uid]; got.Message != want.Message {
						rt.Fatalf("pod %s: the sink has %q, the manager %q:\n%s", uid, got.Message, want.Message, log)
					}
				}
			})
	})
}
