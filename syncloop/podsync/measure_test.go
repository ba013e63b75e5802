package podsync_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	workersfake "github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// measured is a Syncer whose measurements run.
type measured struct {
	*podsync.Syncer
	world    *world
	mu       sync.Mutex
	exceeded []types.UID
	times    map[types.UID][]time.Duration // when measurements began
}

// startMeasuring runs measurements in the bubble of a test. usage measures a pod.
func startMeasuring(t *testing.T, usage func(ctx context.Context, pod *v1.Pod) (string, error)) *measured {
	return startMeasuringWith(t, podsync.Options{}, usage)
}

func startMeasuringWith(t *testing.T, opts podsync.Options,
	usage func(ctx context.Context, pod *v1.Pod) (string, error)) *measured {
	m := &measured{world: &world{}, times: map[types.UID][]time.Duration{}}
	begin := time.Now()
	m.world.measure = func(ctx context.Context, pod *v1.Pod) (string, error) {
		m.mu.Lock()
		m.times[pod.UID] = append(m.times[pod.UID], time.Since(begin))
		m.mu.Unlock()
		return usage(ctx, pod)
	}
	m.Syncer = newSyncer(t, m.world, opts)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- m.Run(ctx, evictions{workersfake.NewWorkers(), func(uid types.UID) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.exceeded = append(m.exceeded, uid)
		}})
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return m
}

// evictions are workers that pass evictions on.
type evictions struct {
	podworkers.Workers
	evicted func(uid types.UID)
}

func (e evictions) UpdatePod(u podworkers.Update) { e.evicted(u.Pod.UID) }

// sizedPod is a pod with a volume that has a size limit.
func sizedPod(name string) *v1.Pod {
	return testpod.New(name, testpod.UID(types.UID(name)), testpod.Containers("main"), testpod.Volumes(v1.Volume{
		Name: "v", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Mi"))}},
	}))
}

func (m *measured) sync(t *testing.T, typ podworkers.UpdateType, pod *v1.Pod) podworkers.Result {
	t.Helper()
	res, err := m.SyncPod(t.Context(), typ, pod, nothing())
	require.NoError(t, err)
	return res
}

func (m *measured) measuredAt(name string) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times[types.UID(name)]
}

func TestWithoutStorageEvictionNothingIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMeasuringWith(t, podsync.Options{NoStorageEviction: true},
			func(context.Context, *v1.Pod) (string, error) { return "too much", nil })
		m.sync(t, podworkers.Create, sizedPod("web"))
		time.Sleep(time.Hour)
		assert.False(t, m.sync(t, podworkers.Sync, sizedPod("web")).Terminal)
		assert.Empty(t, m.measuredAt("web"))
	})
}

// What cannot be measured is logged once, until something else or nothing is wrong.
func TestAMeasurementThatFailsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Pointer[syscall.Errno]
		var lines atomic.Int32
		opts := podsync.Options{}
		opts.Logger = funcr.New(func(_, line string) {
			assert.Contains(t, line, "Not all storage of a pod can be measured")
			lines.Add(1)
		}, funcr.Options{})
		m := startMeasuringWith(t, opts, func(context.Context, *v1.Pod) (string, error) {
			if cause := failed.Load(); cause != nil {
				return "", *cause
			}
			return "", nil
		})
		m.sync(t, podworkers.Create, sizedPod("web"))
		for _, step := range []struct {
			err  *syscall.Errno
			want int32
		}{{new(syscall.ESTALE), 1}, {new(syscall.EIO), 2}, {nil, 2}, {new(syscall.EIO), 3}} {
			failed.Store(step.err)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, step.want, lines.Load())
		}
		m.mu.Lock()
		assert.Empty(t, m.exceeded)
		m.mu.Unlock()
	})
}

func TestAVolumeThatOutgrowsItsLimitEvictsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		message := ""
		m := startMeasuring(t, func(context.Context, *v1.Pod) (string, error) { return message, nil })
		assert.Zero(t, m.sync(t, podworkers.Create, sizedPod("web")).RetryAfter,
			"it is not synced for the measurement")
		m.sync(t, podworkers.Create, testpod.New("other", testpod.UID("other"), testpod.Containers("main")))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		message = "too much"
		assert.False(t, m.sync(t, podworkers.Sync, sizedPod("web")).Terminal)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}, m.measuredAt("web"))
		assert.Empty(t, m.measuredAt("other"))
		m.mu.Lock()
		assert.Equal(t, []types.UID{"web"}, m.exceeded)
		m.mu.Unlock()
		assert.True(t, m.sync(t, podworkers.Sync, sizedPod("web")).Terminal)
		assert.Equal(t, "Evicted", m.world.last().Reason)
		assert.Equal(t, "too much", m.world.last().Message)
		assert.Equal(t, v1.PodFailed, m.world.last().Phase)
		require.NoError(t, m.SyncTerminatedPod(t.Context(), sizedPod("web"), nothing()))
		time.Sleep(time.Hour)
		assert.Len(t, m.measuredAt("web"), 3)
	})
}

// A pod whose files take minutes holds up neither its own syncs, nor its end, nor the
// measurements of others.
func TestMeasuringHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMeasuring(t, func(ctx context.Context, pod *v1.Pod) (string, error) {
			if pod.Name == "many-files" {
				<-ctx.Done()
				return "what was measured until then", ctx.Err()
			}
			return "", nil
		})
		m.sync(t, podworkers.Create, sizedPod("many-files"))
		m.sync(t, podworkers.Create, sizedPod("web"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		assert.Len(t, m.measuredAt("many-files"), 1)
		assert.Len(t, m.measuredAt("web"), 3)
		assert.False(t, m.sync(t, podworkers.Sync, sizedPod("many-files")).Terminal)
		began := time.Now()
		require.NoError(t, m.SyncTerminatedPod(t.Context(), sizedPod("many-files"), nothing()))
		assert.Zero(t, time.Since(began))
		m.mu.Lock()
		assert.Empty(t, m.exceeded)
		m.mu.Unlock()
	})
}

// Pods whose files take minutes are measured one at a time. They delay the others once.
func TestSlowPodsAreMeasuredOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ended := 0
		m := startMeasuring(t, func(ctx context.Context, pod *v1.Pod) (string, error) {
			if pod.Name == "web" {
				return "", nil
			}
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(15 * time.Minute):
				mu.Lock()
				defer mu.Unlock()
				ended++
				return "too much", nil
			}
		})
		slow := []string{"slow-1", "slow-2", "slow-3"}
		for _, name := range append(slow, "web") {
			m.sync(t, podworkers.Create, sizedPod(name))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Greater(t, len(m.measuredAt("web")), 350)
		mu.Lock()
		assert.Equal(t, 3, ended, "all are measured in the end")
		mu.Unlock()
		for _, name := range slow {
			assert.Len(t, m.measuredAt(name), 2, name)
		}
	})
}

// A measurement that cannot be ended, as of a file system that does not answer, holds up the end of
// its pod, and neither its worker nor its syncs.
func TestMeasurementThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		m := startMeasuring(t, func(context.Context, *v1.Pod) (string, error) {
			<-answer
			return "too much", nil
		})
		m.sync(t, podworkers.Create, sizedPod("web"))
		time.Sleep(15 * time.Second)
		for range 2 {
			began := time.Now()
			require.ErrorIs(t, m.SyncTerminatedPod(t.Context(), sizedPod("web"), nothing()), context.DeadlineExceeded)
			assert.Equal(t, 10*time.Second, time.Since(began))
		}
		assert.False(t, m.sync(t, podworkers.Sync, sizedPod("web")).Terminal)
		close(answer)
		require.NoError(t, m.SyncTerminatedPod(t.Context(), sizedPod("web"), nothing()))
		time.Sleep(time.Hour)
		assert.Len(t, m.measuredAt("web"), 1)
	})
}

// A measurement that takes long is repeated the less often.
func TestMeasuringHasAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMeasuring(t, func(context.Context, *v1.Pod) (string, error) {
			time.Sleep(6 * time.Second)
			return "", nil
		})
		m.sync(t, podworkers.Create, sizedPod("web"))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{10 * time.Second, 70 * time.Second, 130 * time.Second}, m.measuredAt("web"))
		without := testpod.New("web", testpod.UID("web"), testpod.Containers("main"))
		m.sync(t, podworkers.Change, without)
		time.Sleep(3 * time.Minute)
		assert.Len(t, m.measuredAt("web"), 3, "an update has taken the limit away")
	})
}

// No timer runs while no pod has limits.
func TestWithoutLimitsNothingIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMeasuring(t, func(context.Context, *v1.Pod) (string, error) { return "", nil })
		time.Sleep(time.Hour)
		m.sync(t, podworkers.Create, sizedPod("web"))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		assert.Equal(t, []time.Duration{time.Hour + 10*time.Second}, m.measuredAt("web"))
	})
}

// The pod is killed before its event is emitted: the embedder's code may begin a pod of the same UID.
func TestEvictionKillsBeforeItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers, killed := workersfake.NewWorkers(), make(chan bool, 1)
		w := &world{measure: func(context.Context, *v1.Pod) (string, error) { return "too much", nil }}
		s := newSyncer(t, w,
			podsync.Options{
				Observer: runtime.Observer{NonBlocking: true, Event: runtime.EventFunc(
					func(runtime.Event) { killed <- workers.State("web").TerminationRequested() })}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx, workers) }()
		_, err := s.SyncPod(t.Context(), podworkers.Create, sizedPod("web"), nothing())
		require.NoError(t, err)
		workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: sizedPod("web")})
		assert.True(t, <-killed)
		cancel()
		require.NoError(t, <-ended)
	})
}
