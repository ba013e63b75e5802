package status

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
)

// sink records deliveries as "<second> <pod> <phase> <message>" and answers as the
// test says.
type sink struct {
	mu     sync.Mutex
	start  time.Time
	log    []string
	answer func(ctx context.Context, uid types.UID, s v1.PodStatus) error
	busy   map[types.UID]bool
	most   int
	last   map[types.UID]v1.PodStatus
}

func (k *sink) Deliver(ctx context.Context, pod *v1.Pod, s v1.PodStatus) error {
	k.mu.Lock()
	if k.busy[pod.UID] {
		k.log = append(k.log, "TWICE AT ONCE")
	}
	k.busy[pod.UID] = true
	k.most = max(k.most, len(k.busy))
	k.log = append(k.log, strings.TrimSpace(fmt.Sprintf("%v %s %s %s", time.Since(k.start).Seconds(), pod.UID, s.Phase, s.Message)))
	f := k.answer
	k.mu.Unlock()
	var err error
	if f != nil {
		err = f(ctx, pod.UID, s)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, pod.UID)
	if err == nil {
		k.last[pod.UID] = s
	}
	return err
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
func managed(t *testing.T, opts Options, f func(m *Manager, k *sink)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &sink{start: time.Now(), busy: map[types.UID]bool{}, last: map[types.UID]v1.PodStatus{}}
		opts.Sink = k
		m, err := New(opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
		f(m, k)
		cancel()
		wg.Wait()
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
	managed(t, Options{}, func(m *Manager, k *sink) {
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
	managed(t, Options{}, func(m *Manager, k *sink) {
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
	managed(t, Options{Concurrency: 3}, func(m *Manager, k *sink) {
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
	managed(t, Options{RetryMin: time.Second, RetryMax: 3 * time.Second}, func(m *Manager, k *sink) {
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

		k.answer = func(context.Context, types.UID, v1.PodStatus) error { return fmt.Errorf("a: %w", ErrGone) }
		m.Set(named("a"), phased(v1.PodRunning, "gone"))
		time.Sleep(time.Hour)
		assert.Equal(t, "3604 a Running gone", k.deliveries())
	})
}

func TestForget(t *testing.T) {
	managed(t, Options{RetryMin: time.Second}, func(m *Manager, k *sink) {
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
		assert.ElementsMatch(t, []string{"1 a Running", "1 b Running"}, strings.Split(k.deliveries(), "\n"), "once more, then no more")
		assert.Empty(t, m.pods)

		// The same UID may come again, and starts from nothing.
		broken = nil
		m.Set(named("a"), phased(v1.PodPending, ""))
		assert.Contains(t, k.deliveries(), "a Pending")
	})
}

func TestSetKeepsWhatDoesNotGoBack(t *testing.T) {
	m, err := New(Options{})
	require.NoError(t, err)
	pod := named("a")
	pod.Generation = 3
	start := v1.PodStatus{Phase: v1.PodRunning, StartTime: ptr(apiTime(at(1))), Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: apiTime(at(1))},
	}}
	m.Set(pod, start)
	old := named("a")
	old.Generation = 2
	m.Set(old, v1.PodStatus{Phase: v1.PodPending, StartTime: ptr(apiTime(at(9))), Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: apiTime(at(9))},
	}})
	s, _ := m.Get("a")
	assert.Equal(t, v1.PodRunning, s.Phase)
	assert.Equal(t, int64(3), s.ObservedGeneration)
	assert.Equal(t, at(1), s.StartTime.Time)
	assert.Equal(t, at(1), s.Conditions[0].LastTransitionTime.Time)

	m.Set(pod, v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"})
	m.Set(pod, v1.PodStatus{Phase: v1.PodRunning})
	s, _ = m.Get("a")
	assert.Equal(t, v1.PodFailed, s.Phase)
	assert.Equal(t, "Evicted", s.Reason)
}

func TestFinalPhaseIsHeldBackWhileSomethingRuns(t *testing.T) {
	pod := named("a")
	running := Generate(Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 running@1"), Now: at(1)})
	evicted := Generate(Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 running@1"), Previous: &running, Now: at(2), Override: func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, "Evicted", "evicted"
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
	}})
	stopped := Generate(Input{Pod: pod, Runtime: observe("", "app/1 exit0@1-3"), Previous: &evicted, Now: at(3), Terminated: true})

	t.Run("by the status", func(t *testing.T) {
		managed(t, Options{}, func(m *Manager, k *sink) {
			m.Set(pod, running)
			m.Set(pod, evicted)
			assert.Contains(t, k.deliveries(), "a Running")
			assert.Nil(t, findCondition(k.last["a"].Conditions, v1.DisruptionTarget))
			assert.Equal(t, v1.ConditionFalse, findCondition(k.last["a"].Conditions, v1.PodReady).Status)
			s, _ := m.Get("a")
			assert.Equal(t, v1.PodFailed, s.Phase, "the agent itself knows")
			m.Set(pod, stopped)
			assert.Equal(t, "0 a Failed evicted", k.deliveries())
			assert.NotNil(t, findCondition(k.last["a"].Conditions, v1.DisruptionTarget))
		})
	})
	t.Run("by MayRun, until terminated", func(t *testing.T) {
		managed(t, Options{MayRun: func(types.UID) bool { return true }}, func(m *Manager, k *sink) {
			m.Set(pod, running)
			m.Set(pod, stopped)
			assert.NotContains(t, k.deliveries(), "Failed")
			m.Terminate(pod)
			assert.Equal(t, "0 a Failed evicted", k.deliveries())
		})
	})
}

func TestTerminate(t *testing.T) {
	static := podOf(v1.RestartPolicyAlways, "app")
	static.Annotations = map[string]string{runtime.AnnotationConfigSource: "file"}
	crashing := map[string]v1.ContainerStateWaiting{"app": {Reason: "CrashLoopBackOff"}}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		last Input
		want string
	}{
		{"running", podOf(v1.RestartPolicyAlways, "app"), Input{Runtime: observe("", "app/1 running@1")}, `
			Failed since -1
			Ready=False@5 (PodFailed: )
			app[1]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"static", static, Input{Runtime: observe("", "app/1 running@1")}, `
			Running since -1
			Ready=False@5 (ContainersNotReady: containers with unready status: [app])
			app[1]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"ended", podOf(v1.RestartPolicyNever, "app"), Input{Runtime: observe("", "app/1 exit0@1-2"), Terminated: true}, `
			Succeeded since -1
			app[1]: exit0@1-2 Completed, restarts 0`},
		{"crashing", podOf(v1.RestartPolicyAlways, "app"), Input{Runtime: observe("", "app/1 exit3@1-2"), Waiting: crashing}, `
			Failed since -1
			app[1]: exit3@1-2 Error, was exit3@1-2 Error, restarts 0`},
		{"never started", podOf(v1.RestartPolicyAlways, "app"), Input{Runtime: &runtime.PodStatus{}}, `
			Failed since 4
			app[]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"while it was initialized", podOf(v1.RestartPolicyAlways, "init:one", "side:log", "init:two", "app"), Input{Runtime: observe("", "log/2 running@2", "one/1 exit0@1-2")}, `
			Failed since -1
			one[1]: exit0@1-2 Completed, restarts 0, ready
			log[2]: exit137@--- ContainerStatusUnknown, restarts 0
			two[]: waiting PodInitializing, restarts 0
			app[]: waiting PodInitializing, restarts 0`},
		{"after it was initialized", podOf(v1.RestartPolicyAlways, "init:one", "app"), Input{Runtime: observe("", "one/1 exit0@1-2")}, `
			app[]: exit137@--- ContainerStatusUnknown, restarts 0`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.last.Pod, tc.last.Now = tc.pod, at(4)
			managed(t, Options{}, func(m *Manager, k *sink) {
				last := Generate(tc.last)
				m.Set(tc.pod, last)
				k.deliveries()
				assert.False(t, m.Finished("u1"))
				m.Terminate(tc.pod)
				assert.NotEmpty(t, k.deliveries(), "delivered even if it stays the same")
				assert.True(t, m.Finished("u1"))
				m.Terminate(tc.pod)
				assert.Empty(t, k.deliveries())
				s, _ := m.Get("u1")
				for i := range s.Conditions {
					if !s.Conditions[i].LastTransitionTime.Equal(ptr(apiTime(at(4)))) {
						s.Conditions[i].LastTransitionTime = apiTime(at(5)) // the bubble's clock
					}
				}
				want := tc.want
				if !strings.Contains(render(s), "Ready=False@5") {
					want = strings.ReplaceAll(want, "@5", "@4") // was False before
				}
				checkLines(t, 0, want, render(s))
			})
		})
	}
}

func TestSetRefusesResurrections(t *testing.T) {
	m, err := New(Options{})
	require.NoError(t, err)
	pod := podOf(v1.RestartPolicyOnFailure, "app")
	set := func(state string) string {
		m.Set(pod, Generate(Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 "+state), Now: noon}))
		s, _ := m.Get("u1")
		return strings.SplitN(render(s), "app[1]: ", 2)[1]
	}
	assert.Contains(t, set("exit1@1-2"), "exit1")
	assert.Contains(t, set("running@3"), "running", "it may be restarted")
	assert.Contains(t, set("exit0@3-4"), "exit0")
	assert.Contains(t, set("running@5"), "exit0", "it may not")
}

func TestNormalize(t *testing.T) {
	pod := podOf(v1.RestartPolicyAlways, "init:z", "init:a", "b", "c")
	long := strings.Repeat("ä", 5000)
	s := v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "gone"}, {Name: "a"}, {Name: "z"}},
		ContainerStatuses:     []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: long}}}, {Name: "b"}},
		Conditions:            []v1.PodCondition{{LastTransitionTime: apiTime(at(0.9))}},
	}
	s.Conditions[0].LastTransitionTime.Time = at(0.9)
	normalize(pod, &s)
	names := ""
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		names += c.Name + " "
	}
	assert.Equal(t, "z a gone b c ", names)
	assert.Equal(t, 3072, len(s.ContainerStatuses[1].State.Terminated.Message))
	assert.Equal(t, at(0), s.Conditions[0].LastTransitionTime.Time)
}

func TestRunEndsWithItsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		k := &sink{busy: map[types.UID]bool{}, last: map[types.UID]v1.PodStatus{}, answer: func(ctx context.Context, _ types.UID, _ v1.PodStatus) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return ctx.Err()
		}}
		m, err := New(Options{Sink: k})
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

func TestNewRefuses(t *testing.T) {
	_, err := New(Options{Concurrency: -1, RetryMin: 2 * time.Second, RetryMax: time.Second})
	assert.ErrorContains(t, err, "Concurrency is -1")
	assert.ErrorContains(t, err, "RetryMax 1s is below RetryMin 2s")
}

func TestBackoff(t *testing.T) {
	m, err := New(Options{RetryMin: time.Second, RetryMax: 5 * time.Second})
	require.NoError(t, err)
	var got []time.Duration
	for i := range 5 {
		got = append(got, m.backoff(i).Round(time.Second))
	}
	assert.Equal(t, []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}, got)
	assert.Equal(t, 5*time.Second, m.backoff(1e9))
}

// Whatever a sink does, once it is well again it has the latest of every pod, and
// never had two deliveries of one pod at once.
func TestNoneIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		managed(t, Options{Concurrency: rapid.IntRange(1, 3).Draw(rt, "concurrency")}, func(m *Manager, k *sink) {
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
