package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

func TestSetKeepsWhatDoesNotGoBack(t *testing.T) {
	m, err := status.New(status.Options{})
	require.NoError(t, err)
	pod := named("a")
	pod.Generation = 3
	start := v1.PodStatus{Phase: v1.PodRunning, StartTime: ptr(whole(at(1))), Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: whole(at(1))},
	}}
	m.Set(pod, start)
	old := named("a")
	old.Generation = 2
	m.Set(old, v1.PodStatus{Phase: v1.PodPending, StartTime: ptr(whole(at(9))), Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: whole(at(9))},
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
	running := status.Generate(status.Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 running@1"), Now: at(1)})
	evicted := status.Generate(status.Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 running@1"),
		Previous: &running, Now: at(2), Override: func(s *v1.PodStatus) {
			s.Phase, s.Reason, s.Message = v1.PodFailed, "Evicted", "evicted"
			s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
		}})
	stopped := status.Generate(status.Input{Pod: pod, Runtime: observe("", "app/1 exit0@1-3"), Previous: &evicted,
		Now: at(3), Terminated: true})

	t.Run("by the status", func(t *testing.T) {
		managed(t, status.Options{}, func(m *status.Store, k *sink) {
			m.Set(pod, running)
			m.Set(pod, evicted)
			assert.Contains(t, k.deliveries(), "a Running")
			assert.Nil(t, condition(k.last["a"].Conditions, v1.DisruptionTarget))
			assert.Equal(t, v1.ConditionFalse, condition(k.last["a"].Conditions, v1.PodReady).Status)
			s, _ := m.Get("a")
			assert.Equal(t, v1.PodFailed, s.Phase, "the agent itself knows")
			m.Set(pod, stopped)
			assert.Equal(t, "0 a Failed evicted", k.deliveries())
			assert.NotNil(t, condition(k.last["a"].Conditions, v1.DisruptionTarget))
		})
	})
	t.Run("by MayRun, until terminated", func(t *testing.T) {
		managed(t, status.Options{MayRun: func(types.UID) bool { return true }}, func(m *status.Store, k *sink) {
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
	static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	crashing := map[string]v1.ContainerStateWaiting{"app": {Reason: "CrashLoopBackOff"}}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		last status.Input
		want string
	}{
		{"running", podOf(v1.RestartPolicyAlways, "app"), status.Input{Runtime: observe("", "app/1 running@1")}, `
			Failed since -1
			Ready=False@5 (PodFailed: )
			app[1]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"static", static, status.Input{Runtime: observe("", "app/1 running@1")}, `
			Failed since -1
			Ready=False@5 (PodFailed: )
			app[1]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"static, stopped", static, status.Input{Runtime: observe("", "app/1 exit0@1-2"), Terminated: true}, `
			Succeeded since -1
			app[1]: exit0@1-2 Completed, restarts 0`},
		{"ended", podOf(v1.RestartPolicyNever, "app"), status.Input{Runtime: observe("", "app/1 exit0@1-2"), Terminated: true}, `
			Succeeded since -1
			app[1]: exit0@1-2 Completed, restarts 0`},
		{"crashing", podOf(v1.RestartPolicyAlways, "app"), status.Input{Runtime: observe("", "app/1 exit3@1-2"), Waiting: crashing}, `
			Failed since -1
			app[1]: exit3@1-2 Error, restarts 0`},
		{"never started", podOf(v1.RestartPolicyAlways, "app"), status.Input{Runtime: &runtime.PodStatus{}}, `
			Failed since 4
			app[]: exit137@--- ContainerStatusUnknown, restarts 0`},
		{"while it was initialized", podOf(v1.RestartPolicyAlways, "init:one", "side:log", "init:two", "app"), status.Input{Runtime: observe("", "log/2 running@2", "one/1 exit0@1-2")}, `
			Failed since -1
			one[1]: exit0@1-2 Completed, restarts 0, ready
			log[2]: exit137@--- ContainerStatusUnknown, restarts 0
			two[]: waiting PodInitializing, restarts 0
			app[]: waiting PodInitializing, restarts 0`},
		{"after it was initialized", podOf(v1.RestartPolicyAlways, "init:one", "app"), status.Input{Runtime: observe("", "one/1 exit0@1-2")}, `
			app[]: exit137@--- ContainerStatusUnknown, restarts 0`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.last.Pod, tc.last.Now = tc.pod, at(4)
			managed(t, status.Options{}, func(m *status.Store, k *sink) {
				last := status.Generate(tc.last)
				m.Set(tc.pod, last)
				k.deliveries()
				assert.False(t, m.Finished("u1"))
				m.Terminate(tc.pod)
				k.deliveries()
				assert.True(t, m.Finished("u1"))
				m.Terminate(tc.pod)
				assert.Empty(t, k.deliveries())
				s, _ := m.Get("u1")
				for i := range s.Conditions {
					if !s.Conditions[i].LastTransitionTime.Equal(ptr(whole(at(4)))) {
						s.Conditions[i].LastTransitionTime = whole(at(5)) // the bubble's clock
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
	m, err := status.New(status.Options{})
	require.NoError(t, err)
	pod := podOf(v1.RestartPolicyOnFailure, "app")
	set := func(state string) string {
		m.Set(pod, status.Generate(status.Input{Pod: pod, Runtime: observe("10.0.0.1", "app/1 "+state), Now: noon}))
		s, _ := m.Get("u1")
		return strings.SplitN(render(s), "app[1]: ", 2)[1]
	}
	assert.Contains(t, set("exit1@1-2"), "exit1")
	assert.Contains(t, set("running@3"), "running", "it may be restarted")
	assert.Contains(t, set("exit0@3-4"), "exit0")
	assert.Contains(t, set("running@5"), "exit0", "it may not")
}

func TestNewRefuses(t *testing.T) {
	_, err := status.New(status.Options{Concurrency: -1, RetryMin: 2 * time.Second, RetryMax: time.Second})
	assert.ErrorContains(t, err, "Concurrency is -1")
	assert.ErrorContains(t, err, "RetryMax 1s is below RetryMin 2s")
}

func TestNormalize(t *testing.T) {
	pod := podOf(v1.RestartPolicyAlways, "init:z", "init:a", "b", "c")
	long := strings.Repeat("ä", 5000)
	s := v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "gone"}, {Name: "a"}, {Name: "z"}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: long}}}, {Name: "b"}},
		Conditions: []v1.PodCondition{{LastTransitionTime: whole(at(0.9))}},
	}
	s.Conditions[0].LastTransitionTime.Time = at(0.9)
	m, err := status.New(status.Options{})
	require.NoError(t, err)
	m.Set(pod, s)
	s, _ = m.Get(pod.UID)
	names := ""
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		names += c.Name + " "
	}
	assert.Equal(t, "z a gone b c ", names)
	assert.Equal(t, 3072, len(s.ContainerStatuses[1].State.Terminated.Message))
	assert.Equal(t, at(0), s.Conditions[0].LastTransitionTime.Time)
}

// Changed is called without the lock after each change that Get shows, and when the pod has finished.
func TestChanged(t *testing.T) {
	var m *status.Store
	var got []string
	m, err := status.New(status.Options{Changed: func(uid types.UID) {
		s, ok := m.Get(uid)
		got = append(got, fmt.Sprint(uid, " ", s.Phase, " ", ok))
	}})
	require.NoError(t, err)
	for _, uid := range []types.UID{"a", "b"} {
		m.Set(named(uid), phased(v1.PodRunning, ""))
	}
	m.Terminate(named("a"))
	m.PodFinished(runtime.PodRef{UID: "a"})
	m.Forget("a")
	m.Forget("a")
	m.Prune(func(types.UID) bool { return false })
	assert.Equal(t, []string{"a Running true", "b Running true", "a Failed true", "a Failed true", "a  false",
		"b  false"}, got)
}
