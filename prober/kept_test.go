package prober_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// states keeps states as a disk does.
type states struct {
	mu     sync.Mutex
	data   map[string][]byte
	writes int
}

// KeepState implements [prober.States].
func (s *states) KeepState(name string, state any) {
	data, err := json.Marshal(state)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[name] = data
	s.writes++
}

// LoadState implements [prober.States].
func (s *states) LoadState(name string, into any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.data[name]
	return ok && json.Unmarshal(data, into) == nil
}

func (s *states) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *states) kept() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.data["probes"])
}

func newStates(probes string) *states {
	s := &states{data: map[string][]byte{}}
	if probes != "" {
		s.data["probes"] = []byte(probes)
	}
	return s
}

var probed = podWith(v1.Container{StartupProbe: exec("startup", v1.Probe{}),
	LivenessProbe: exec("liveness", v1.Probe{}), ReadinessProbe: exec("readiness", v1.Probe{})})

func TestResultsAreKeptWhenTheyChange(t *testing.T) {
	kept := newStates("")
	scenarioWith(t, prober.Options{States: kept}, func(h *harness) {
		h.AddPod(probed)
		h.run("a")
		h.pass(time.Hour)
		assert.Equal(t, 2, kept.written(), "nothing is written while results are the same, nor for liveness")
		assert.JSONEq(t, `{"u1":[{"id":"fake://a","started":true,"ready":true}]}`, kept.kept())
		h.on("readiness", 1)
		h.pass(time.Minute)
		assert.Equal(t, 3, kept.written())
		assert.JSONEq(t, `{"u1":[{"id":"fake://a","started":true}]}`, kept.kept())
		h.run("b")
		h.pass(time.Minute)
		assert.JSONEq(t, `{"u1":[{"id":"fake://b","started":true}]}`, kept.kept(),
			"the results of an instance end with it")
	})
}

// An agent that starts has the results that the one before has kept, before the first attempt.
func TestResultsAreRestored(t *testing.T) {
	both := `{"u1":[{"id":"fake://a","started":true,"ready":true}]}`
	of := func(id string, started, ready bool) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "app", ContainerID: "fake://" + id, Started: &started, Ready: ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}}
	}
	for name, test := range map[string]struct {
		kept           string
		api            v1.PodStatus
		state          runtime.ContainerState
		started, ready bool
	}{
		"nothing":                     {"", v1.PodStatus{}, runtime.ContainerRunning, false, false},
		"both":                        {both, v1.PodStatus{}, runtime.ContainerRunning, true, true},
		"started":                     {`{"u1":[{"id":"fake://a","started":true}]}`, v1.PodStatus{}, runtime.ContainerRunning, true, false},
		"of another instance":         {`{"u1":[{"id":"fake://b","started":true,"ready":true}]}`, v1.PodStatus{}, runtime.ContainerRunning, false, false},
		"of another pod":              {`{"u2":[{"id":"fake://a","started":true,"ready":true}]}`, v1.PodStatus{}, runtime.ContainerRunning, false, false},
		"it has ended":                {both, v1.PodStatus{}, runtime.ContainerExited, false, false},
		"newer than the API":          {both, of("a", false, false), runtime.ContainerRunning, true, true},
		"not ready since":             {`{"u1":[{"id":"fake://a","started":true}]}`, of("a", true, true), runtime.ContainerRunning, true, false},
		"of the API":                  {"", of("a", true, true), runtime.ContainerRunning, true, true},
		"the API is of this instance": {`{"u1":[{"id":"fake://b"}]}`, of("a", true, true), runtime.ContainerRunning, true, true},
		"other content":               {`{"u1":[{"id":"?"},{"id":"fake://a","started":true}]}`, v1.PodStatus{}, runtime.ContainerRunning, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.set("u1", "a", test.state, time.Now())
				m, err := prober.New(n, n, prober.Options{States: newStates(test.kept)})
				require.NoError(t, err)
				m.AddPod(testpod.With(probed, func(pod *v1.Pod) { pod.Status = test.api }))
				assert.Equal(t, test.started, m.Started(id("a")))
				assert.Equal(t, test.ready, m.Ready(id("a")))
			})
		})
	}
}

// What was kept stays kept until its pod is gone, although the agent adds it late.
func TestKeptResultsOfPodsThatWereNotAddedYet(t *testing.T) {
	kept := newStates(`{"late":[{"id":"fake://l","started":true}],"gone":[{"id":"fake://g","ready":true}]}`)
	scenarioWith(t, prober.Options{States: kept}, func(h *harness) {
		h.AddPod(probed)
		h.Cleanup(func(uid types.UID) bool { return uid != "gone" })
		h.run("a")
		h.pass(time.Minute)
		assert.JSONEq(t,
			`{"u1":[{"id":"fake://a","started":true,"ready":true}],"late":[{"id":"fake://l","started":true}]}`,
			kept.kept())
		h.node.setStatus("late",
			runtime.PodStatus{Containers: []runtime.ContainerStatus{*instance("l", runtime.ContainerRunning,
				time.Now())}})
		h.AddPod(testpod.With(probed, testpod.UID("late")))
		assert.True(t, h.Started(id("l")))
	})
}

// The restart of an agent does not make a container run its startup probe again, and a readiness probe has to fail as
// often as before.
func TestRestoredResultsCount(t *testing.T) {
	kept := newStates(`{"u1":[{"id":"fake://a","started":true,"ready":true}]}`)
	scenarioWith(t, prober.Options{States: kept}, func(h *harness) {
		h.on("startup", 1)
		h.on("readiness", 1)
		h.node.set("u1", "a", runtime.ContainerRunning, h.start.Add(-time.Hour))
		h.AddPod(podWith(v1.Container{
			StartupProbe: exec("startup", v1.Probe{}), ReadinessProbe: exec("readiness",
				v1.Probe{PeriodSeconds: 10, FailureThreshold: 3}),
		}))
		h.pass(24 * time.Second)
		assert.True(t, h.Ready(id("a")))
		h.pass(2 * time.Second)
		assert.False(t, h.Ready(id("a")))
		assert.True(t, h.Started(id("a")))
		assert.Equal(t, "5s readiness a, 15s readiness a, 25s readiness a", h.commands())
	})
}

// A disk that hangs holds up the pods that are added, and nothing else.
func TestStatesThatAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowStates{release: make(chan struct{})}
		n := newNode()
		m, err := prober.New(n, n, prober.Options{States: slow})
		require.NoError(t, err)
		var added sync.WaitGroup
		added.Go(func() { m.AddPod(probed) })
		synctest.Wait()
		m.Notify("u1")
		m.RemovePod(probed)
		m.Cleanup(func(types.UID) bool { return true })
		assert.False(t, m.Ready(id("a")))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, m.Run(ctx))
		close(slow.release)
		added.Wait()
	})
}

type slowStates struct{ release chan struct{} }

func (slowStates) KeepState(string, any) {}

func (s slowStates) LoadState(string, any) bool { <-s.release; return false }
