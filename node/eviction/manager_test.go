package eviction_test

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// machine is an agent, its pods and its machine in memory.
type machine struct {
	lifecycle.NopNode
	mu       sync.Mutex
	readings map[eviction.Signal]int64 // of 1000 Mi
	err      error
	reads    int
	pods     []eviction.Pod
	evicted  []string
	graces   []int64
	// endsAfter is how long the end of a pod takes; its memory is available then.
	endsAfter time.Duration
	removed   []string
	// slow is how long a removal takes.
	slow  time.Duration
	wake  func()
	watch error
	// layout panics if it is negative.
	layout  eviction.Layout
	events  []runtime.Event
	records []runtime.Record
	logs    []string
	changed int
}

func (m *machine) lock() func() { m.mu.Lock(); return m.mu.Unlock }

func (m *machine) Pods() (out []*v1.Pod) {
	defer m.lock()()
	for _, p := range m.pods {
		out = append(out, p.Pod)
	}
	return out
}

func (m *machine) Evict(uid types.UID, e runtime.Eviction) error {
	defer m.lock()()
	i := slices.IndexFunc(m.pods, func(p eviction.Pod) bool { return p.Pod.UID == uid })
	if i < 0 {
		return errors.New("no such pod")
	}
	m.evicted, m.graces = append(m.evicted, string(uid)+": "+e.Reason), append(m.graces, *e.GracePeriod)
	m.pods[i].Ending = true
	used := *m.pods[i].Usage.Memory
	time.AfterFunc(m.endsAfter, func() {
		defer m.lock()()
		m.pods = slices.DeleteFunc(m.pods, func(p eviction.Pod) bool { return p.Pod.UID == uid })
		m.readings[eviction.MemoryAvailable] += used
	})
	return nil
}

func (m *machine) State(uid types.UID) lifecycle.PodState {
	defer m.lock()()
	i := slices.IndexFunc(m.pods, func(p eviction.Pod) bool { return p.Pod.UID == uid })
	if i < 0 {
		return lifecycle.PodState{}
	}
	return lifecycle.PodState{Known: true, Ending: m.pods[i].Ending}
}

func (m *machine) NodeStatusChanged()      { defer m.lock()(); m.changed++ }
func (m *machine) Event(e runtime.Event)   { defer m.lock()(); m.events = append(m.events, e) }
func (m *machine) Record(r runtime.Record) { defer m.lock()(); m.records = append(m.records, r) }

func (m *machine) Logger() logr.Logger {
	return funcr.New(func(_, args string) { defer m.lock()(); m.logs = append(m.logs, args) }, funcr.Options{})
}

func (m *machine) remove(ctx context.Context, what string) error {
	select {
	case <-time.After(m.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	defer m.lock()()
	m.removed = append(m.removed, what)
	return nil
}

func (m *machine) DeleteUnusedContainers(ctx context.Context) error {
	return m.remove(ctx, "containers")
}
func (m *machine) DeleteUnusedImages(ctx context.Context) error { return m.remove(ctx, "images") }

func (m *machine) Read(context.Context, []eviction.Threshold) (eviction.Readings, error) {
	defer m.lock()()
	m.reads++
	out := eviction.Readings{}
	for s, n := range m.readings {
		out[s] = eviction.Reading{Available: n, Capacity: 1000 * mi, At: time.Now()}
	}
	return out, m.err
}

func (m *machine) Layout(context.Context) (eviction.Layout, error) {
	if m.layout < 0 {
		panic("layout")
	}
	return m.layout, nil
}

func (m *machine) Watch(ctx context.Context, _ []eviction.Threshold, wake func()) error {
	if m.watch != nil {
		return m.watch
	}
	m.mu.Lock()
	m.wake = wake
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m meter) Measure(_ context.Context, _ lifecycle.Node, _ eviction.Signal, pods []eviction.Pod) error {
	time.Sleep(time.Millisecond)
	defer m.lock()()
	for i := range pods {
		for _, p := range m.pods {
			if p.Pod.UID == pods[i].Pod.UID {
				pods[i].Usage = p.Usage
			}
		}
	}
	return nil
}

// meter is the [eviction.Meter] of a machine.
type meter struct{ *machine }

func (m *machine) set(s eviction.Signal, n int64) {
	defer m.lock()()
	m.readings[s] = n
}

// get returns a value under the lock.
func get[T any](m *machine, f func() T) T {
	defer m.lock()()
	return f()
}

func (m *machine) options(t *testing.T, c eviction.Config) eviction.Options {
	thresholds, err := eviction.Parse(c)
	require.NoError(t, err)
	return eviction.Options{Thresholds: thresholds, MaxPodGracePeriod: 60}
}

// start runs a manager in a bubble of virtual time.
func start(t *testing.T, m *machine, opts eviction.Options, test func(manager *eviction.Manager)) {
	t.Helper()
	manager, err := eviction.New(m, meter{m}, opts)
	require.NoError(t, err)
	require.NoError(t, manager.Join(m))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- manager.Run(ctx) }()
		synctest.Wait()
		test(manager)
		require.ErrorIs(t, manager.Run(ctx), runtime.ErrAlreadyRunning)
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestManager(t *testing.T) {
	m := &machine{
		readings: map[eviction.Signal]int64{eviction.MemoryAvailable: 900 * mi}, endsAfter: 2 * time.Second,
		pods: []eviction.Pod{using(pod("small", 0, "0", "0"), 10*mi), using(pod("hog", 0, "0", "0"), 500*mi)},
	}
	start(t, m, m.options(t, memoryHard), func(manager *eviction.Manager) {
		time.Sleep(time.Minute)
		assert.False(t, manager.UnderPressure(v1.NodeMemoryPressure))
		m.set(eviction.MemoryAvailable, 50*mi)
		began := time.Now()
		m.wake()
		for len(get(m, func() []string { return m.evicted })) == 0 {
			time.Sleep(time.Millisecond)
		}
		assert.Less(t, time.Since(began), 100*time.Millisecond, "from the signal of the kernel to the eviction")
		assert.True(t, manager.UnderPressure(v1.NodeMemoryPressure))
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"hog: Evicted"}, get(m, func() []string { return m.evicted }), "one is enough")
		time.Sleep(5 * time.Minute)
		assert.False(t, manager.UnderPressure(v1.NodeMemoryPressure))
		assert.Equal(t, 2, get(m, func() int { return m.changed }))
	})
	assert.Equal(t, []int64{1}, m.graces)
	require.Len(t, m.records, 2)
	assert.Equal(t, runtime.Record{
		Pod: runtime.RefOf(pod("hog", 0, "0", "0")), Stage: runtime.StageDecided, Kind: runtime.KindEvict,
		Reason: "memory.available", Duration: time.Second,
		Message: "memory.available<100Mi, available: 50Mi of 1000Mi, used by the pod: 500Mi",
	}, m.records[0])
	assert.Equal(t, "500Mi", m.records[1].Message)
	assert.InDelta(t, 2*time.Second, m.records[1].Duration, float64(200*time.Millisecond))
	var reasons []string
	for _, e := range m.events {
		reasons = append(reasons, e.Reason)
	}
	assert.Equal(t, []string{"EvictionThresholdMet", "EvictionCompleted", "EvictionCompleted"}, reasons)
	assert.Contains(t, m.events[1].Message, "freed 500Mi: memory.available is 550Mi")
	assert.Empty(t, m.removed, "images are no memory")
}

func TestManagerOfDisks(t *testing.T) {
	full := pod("full", 0, "0", "0")
	m := &machine{
		readings: map[eviction.Signal]int64{eviction.NodeFsAvailable: 50 * mi, eviction.MemoryAvailable: 500 * mi},
		slow:     20 * time.Second, layout: -1,
		pods: []eviction.Pod{{Pod: full, Usage: eviction.Usage{Memory: new(400 * mi), Logs: bytes(100)}}},
	}
	c := eviction.Config{Hard: map[string]string{"nodefs.available": "10%", "memory.available": "100Mi"}}
	start(t, m, m.options(t, c), func(*eviction.Manager) {
		time.Sleep(5 * time.Second)
		assert.Empty(t, get(m, func() []string { return m.evicted }), "what can be removed is removed first")
		m.set(eviction.MemoryAvailable, 50*mi) // memory does not wait for that
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"full: Evicted"}, get(m, func() []string { return m.evicted }))
		time.Sleep(time.Minute)
		assert.Len(t, get(m, func() []string { return m.evicted }), 1)
		assert.GreaterOrEqual(t, len(get(m, func() []string { return m.removed })), 2)
	})
}

// TestIdleCost asserts how often a node that has enough is read: each 10 s, and each second only near a threshold.
func TestIdleCost(t *testing.T) {
	m := &machine{readings: map[eviction.Signal]int64{eviction.PIDAvailable: 900 * mi}}
	start(t, m, m.options(t, eviction.Config{Hard: map[string]string{"pid.available": "100"}}),
		func(*eviction.Manager) {
			time.Sleep(10 * time.Minute)
			assert.InDelta(t, 60, get(m, func() int { return m.reads }), 2)
			m.set(eviction.PIDAvailable, 5000)
			time.Sleep(10 * time.Second)
			before := get(m, func() int { return m.reads })
			time.Sleep(time.Minute)
			assert.InDelta(t, 60, get(m, func() int { return m.reads })-before, 2)
			for n := int64(5000); n > 200; n -= 480 { // 4,800 processes a second
				m.set(eviction.PIDAvailable, n)
				time.Sleep(100 * time.Millisecond)
			}
			before = get(m, func() int { return m.reads })
			time.Sleep(time.Second)
			assert.Greater(t, get(m, func() int { return m.reads })-before, 1, "it grows")
		})
}

// TestWakesWithoutNeed asserts that 1,000 signals of the kernel, with failing readings among them, evict no pod.
func TestWakesWithoutNeed(t *testing.T) {
	m := &machine{readings: map[eviction.Signal]int64{eviction.MemoryAvailable: 100 * mi},
		pods: []eviction.Pod{using(pod("hog", 0, "0", "0"), 800*mi)}, watch: nil}
	start(t, m, m.options(t, memoryHard), func(*eviction.Manager) {
		for i := range 1000 {
			m.mu.Lock()
			m.err = nil
			if m.readings[eviction.MemoryAvailable] = (100 + int64(i%5)) * mi; i%7 == 0 {
				m.err = errors.New("cannot read")
				delete(m.readings, eviction.MemoryAvailable)
			}
			m.mu.Unlock()
			m.wake()
			time.Sleep(30 * time.Millisecond)
		}
	})
	assert.Empty(t, m.evicted)
	assert.Empty(t, m.events)
}

func TestWithoutSignalsOfTheKernel(t *testing.T) {
	m := &machine{
		readings: map[eviction.Signal]int64{eviction.MemoryAvailable: 600 * mi}, endsAfter: time.Second,
		watch: errors.New("PSI is off"),
		pods:  []eviction.Pod{using(pod("hog", 0, "0", "0"), 500*mi)},
	}
	start(t, m, m.options(t, memoryHard), func(*eviction.Manager) {
		time.Sleep(10 * time.Second)
		m.set(eviction.MemoryAvailable, 50*mi)
		time.Sleep(1100 * time.Millisecond)
		assert.Len(t, get(m, func() []string { return m.evicted }), 1)
	})
	assert.Equal(t, 1, strings.Count(strings.Join(m.logs, "\n"), "PSI is off"))
}

func TestAdmit(t *testing.T) {
	tolerates := pod("tolerates", 0, "0", "0")
	tolerates.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	bestEffort := tolerates.DeepCopy()
	tolerates.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
	burstable, critical := pod("burstable", 0, "1Mi", "0"), bestEffort.DeepCopy()
	critical.Spec.Priority = new(int32(2_000_000_000))
	for _, tc := range []struct {
		low     []eviction.Signal
		refused []*v1.Pod
		message string
	}{
		{},
		{[]eviction.Signal{eviction.MemoryAvailable}, []*v1.Pod{bestEffort}, "The node had condition: [MemoryPressure]. "},
		{[]eviction.Signal{eviction.PIDAvailable}, []*v1.Pod{bestEffort, burstable, tolerates}, "The node had condition: [PIDPressure]. "},
		{[]eviction.Signal{eviction.NodeFsAvailable, eviction.MemoryAvailable}, []*v1.Pod{bestEffort, burstable, tolerates}, "The node had condition: [MemoryPressure DiskPressure]. "},
	} {
		t.Run(fmt.Sprint(tc.low), func(t *testing.T) {
			m := &machine{readings: map[eviction.Signal]int64{}}
			for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.NodeFsAvailable,
				eviction.PIDAvailable} {
				if m.readings[s] = 900 * mi; slices.Contains(tc.low, s) {
					m.readings[s] = 1
				}
			}
			c := eviction.Config{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%",
				"pid.available": "10"}}
			start(t, m, m.options(t, c), func(manager *eviction.Manager) {
				for _, p := range []*v1.Pod{bestEffort, burstable, tolerates, critical} {
					_, err := manager.Admit(lifecycle.AdmitRequest{Pod: p})
					if !slices.Contains(tc.refused, p) {
						assert.NoError(t, err, p.Name)
						continue
					}
					var refusal *runtime.TerminalError
					require.ErrorAs(t, err, &refusal)
					assert.Equal(t, "Evicted", refusal.Reason)
					assert.Equal(t, tc.message, refusal.Message)
					_, err = manager.Admit(lifecycle.AdmitRequest{Pod: p, Held: p})
					assert.NoError(t, err, "a resize")
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	_, err := eviction.New(nil, nil, eviction.Options{Thresholds: []eviction.Threshold{{Signal: "x"}}})
	for _, want := range []string{"a Sensor and a Meter are required", "there is no such signal"} {
		assert.ErrorContains(t, err, want)
	}
	m := &machine{}
	start(t, m, eviction.Options{}, func(manager *eviction.Manager) {
		time.Sleep(time.Hour)
		_, err := manager.Admit(lifecycle.AdmitRequest{Pod: pod("a", 0, "0", "0")})
		assert.NoError(t, err)
	})
	assert.Zero(t, m.reads, "without thresholds it costs nothing")
}

// The end of the agent does not wait for what is removed.
func TestEndOfTheAgent(t *testing.T) {
	m := &machine{readings: map[eviction.Signal]int64{eviction.NodeFsAvailable: 1}, slow: time.Hour}
	start(t, m, m.options(t, eviction.Config{Hard: map[string]string{"nodefs.available": "10%"}}),
		func(*eviction.Manager) {})
	assert.Empty(t, m.removed)
}

// A pod that does not end in time after its eviction has kubelet's event.
func TestAnEvictionThatExceedsItsGracePeriod(t *testing.T) {
	m := &machine{
		readings: map[eviction.Signal]int64{eviction.MemoryAvailable: 50 * mi}, endsAfter: time.Hour,
		pods: []eviction.Pod{using(pod("hog", 0, "0", "0"), 500*mi)},
	}
	start(t, m, m.options(t, memoryHard), func(*eviction.Manager) { time.Sleep(2 * time.Minute) })
	assert.Contains(t, m.events, runtime.Event{Pod: runtime.RefOf(pod("hog", 0, "0", "0")), Type: v1.EventTypeWarning,
		Reason: "ExceededGracePeriod", Logged: true,
		Message: "Container runtime did not kill the pod within specified grace period."})
}
