package prober_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The reason why a container is restarted is in the history of its pod, once.
func TestUnhealthyIsRecordedOnce(t *testing.T) {
	scenario(t, func(h *harness) {
		h.AddPod(podWith(v1.Container{
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 1, FailureThreshold: 2}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
		}))
		h.run("1")
		h.pass(10 * time.Second)
		ready := runtime.Record{Stage: runtime.StageDecided, Kind: runtime.KindProbe, Container: "app",
			Reason: "Readiness"}
		assert.Equal(t, []runtime.Record{ready}, h.past.Records("web"))
		h.on("live", 1)
		h.pass(10 * time.Second)
		unhealthy := ready
		unhealthy.Reason, unhealthy.Error = "Liveness", "the command exited with code 1 and no output"
		assert.Equal(t, []runtime.Record{ready, unhealthy}, h.past.Records("web"))
	})
}

func TestLivenessFailsAfterItsThreshold(t *testing.T) {
	scenario(t, func(h *harness) {
		h.AddPod(podWith(v1.Container{LivenessProbe: exec("live", v1.Probe{InitialDelaySeconds: 2, PeriodSeconds: 5,
			FailureThreshold: 3})}))
		h.pass(time.Minute)
		assert.Empty(t, h.commands(), "nothing runs yet")

		h.run("1")
		h.pass(8 * time.Second)
		assert.Equal(t, "1m2s live 1, 1m7s live 1", h.commands())
		_, bad := h.Unhealthy(id("1"))
		assert.False(t, bad)

		h.on("live", 1)
		h.pass(time.Hour)
		assert.Equal(t, "1m12s live 1, 1m17s live 1, 1m22s live 1", h.commands(), "no attempt after the verdict")
		assert.Equal(t, "1m22s liveness 1 false", h.results())
		probe, bad := h.Unhealthy(id("1"))
		assert.True(t, bad)
		assert.Equal(t, runtime.LivenessProbe, probe)

		h.node.set("u1", "1", runtime.ContainerExited, time.Now())
		h.Notify("u1")
		h.pass(time.Second)
		_, bad = h.Unhealthy(id("1"))
		assert.True(t, bad, "until there is a new instance")

		h.on("live", 0)
		h.run("2")
		_, bad = h.Unhealthy(id("1"))
		assert.False(t, bad)
		h.pass(3 * time.Second)
		assert.Equal(t, "1h1m11s live 2", h.commands())
	})
}

func TestReadiness(t *testing.T) {
	scenario(t, func(h *harness) {
		h.on("ready", 1)
		h.AddPod(podWith(v1.Container{ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1, SuccessThreshold: 2,
			FailureThreshold: 2})}))
		h.run("1")
		h.pass(2500 * time.Millisecond)
		assert.False(t, h.Ready(id("1")))
		assert.Empty(t, h.results(), "not ready is what it was")
		h.on("ready", 0)
		h.pass(2 * time.Second)
		assert.True(t, h.Ready(id("1")))
		assert.Equal(t, "4s readiness 1 true", h.results())
		h.on("ready", 1)
		h.pass(2 * time.Second)
		assert.False(t, h.Ready(id("1")))
		assert.Equal(t, "6s readiness 1 false", h.results())
		h.on("ready", 0)
		h.pass(2 * time.Second)
		assert.True(t, h.Ready(id("1")))

		h.run("2")
		assert.False(t, h.Ready(id("2")), "a new instance is not ready before it was probed")
		assert.False(t, h.Ready(id("1")))
	})
}

func TestOthersWaitForStartup(t *testing.T) {
	scenario(t, func(h *harness) {
		h.on("start", 1)
		h.AddPod(podWith(v1.Container{
			StartupProbe:   exec("start", v1.Probe{PeriodSeconds: 3, FailureThreshold: 10}),
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 60}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 60, InitialDelaySeconds: 8}),
		}))
		h.run("1")
		h.pass(4 * time.Second)
		assert.Equal(t, "0s start 1, 3s start 1", h.commands())
		assert.False(t, h.Started(id("1")))
		h.on("start", 0)
		h.pass(10 * time.Second)
		assert.Equal(t, "6s start 1, 6s live 1, 8s ready 1", h.commands())
		assert.True(t, h.Started(id("1")))
		assert.True(t, h.Ready(id("1")))
		assert.Equal(t, "6s startup 1 true, 8s readiness 1 true", h.results())
	})
}

func TestStartupFails(t *testing.T) {
	scenario(t, func(h *harness) {
		h.on("start", 1)
		h.AddPod(podWith(v1.Container{StartupProbe: exec("start", v1.Probe{PeriodSeconds: 1, FailureThreshold: 2})}))
		h.run("1")
		h.pass(time.Minute)
		assert.Equal(t, "0s start 1, 1s start 1", h.commands())
		assert.Equal(t, "1s startup 1 false", h.results())
		probe, bad := h.Unhealthy(id("1"))
		assert.True(t, bad)
		assert.Equal(t, runtime.StartupProbe, probe)
	})
}

func TestWhatCannotBeCheckedTellsNothing(t *testing.T) {
	scenario(t, func(h *harness) {
		h.onCall("live", func(context.Context) (int32, error) { return 0, errors.New("no connection") })
		h.AddPod(podWith(v1.Container{LivenessProbe: exec("live", v1.Probe{PeriodSeconds: 1, FailureThreshold: 1})}))
		h.run("1")
		h.pass(time.Minute)
		_, bad := h.Unhealthy(id("1"))
		assert.False(t, bad)
		assert.Empty(t, h.results())
		assert.True(t, strings.HasPrefix(h.commands(), "0s live 1, 0s live 1, 0s live 1, 1s live 1, "),
			"three times at once")
	})
}

func TestSlowAttemptsDoNotOverlap(t *testing.T) {
	scenario(t, func(h *harness) {
		h.onCall("live", func(ctx context.Context) (int32, error) {
			time.Sleep(2500 * time.Millisecond)
			return 0, nil
		})
		h.AddPod(podWith(v1.Container{LivenessProbe: exec("live", v1.Probe{PeriodSeconds: 1})}))
		h.run("1")
		h.pass(6 * time.Second)
		assert.Equal(t, "0s live 1, 2.5s live 1, 5s live 1", h.commands())
		h.pass(2 * time.Second)
	})
}

func TestAttemptsAreInterrupted(t *testing.T) {
	for name, stop := range map[string]func(h *harness, pod *v1.Pod){
		"pod removed": func(h *harness, pod *v1.Pod) { h.RemovePod(pod) },
		"cleanup":     func(h *harness, pod *v1.Pod) { h.Cleanup(func(types.UID) bool { return false }) },
		"stopping":    func(h *harness, pod *v1.Pod) { h.StopLivenessAndStartup(pod) },
		"exited": func(h *harness, pod *v1.Pod) {
			h.node.set("u1", "1", runtime.ContainerExited, time.Now())
			h.Notify("u1")
		},
		"replaced": func(h *harness, pod *v1.Pod) {
			h.on("live", 0)
			h.node.set("u1", "2", runtime.ContainerRunning, time.Now())
			h.Notify("u1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(h *harness) {
				interrupted := false
				h.onCall("live", func(ctx context.Context) (int32, error) {
					<-ctx.Done()
					interrupted = true
					return 0, ctx.Err()
				})
				pod := podWith(v1.Container{LivenessProbe: exec("live",
					v1.Probe{TimeoutSeconds: 3600, FailureThreshold: 1})})
				h.AddPod(pod)
				h.run("1")
				h.pass(time.Second)
				assert.False(t, interrupted)
				stop(h, pod)
				synctest.Wait()
				assert.True(t, interrupted)
				assert.Empty(t, h.results())
				if name == "replaced" {
					assert.Equal(t, "0s live 1, 1s live 2", h.commands())
				}
			})
		})
	}
}

func TestStoppingKeepsReadiness(t *testing.T) {
	scenario(t, func(h *harness) {
		pod := podWith(v1.Container{
			StartupProbe:   exec("start", v1.Probe{PeriodSeconds: 1}),
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
		})
		h.AddPod(pod)
		h.run("1")
		h.pass(1500 * time.Millisecond)
		h.commands()
		h.StopLivenessAndStartup(pod)
		h.AddPod(pod.DeepCopy()) // does not bring them back
		h.on("live", 1)
		h.on("ready", 1)
		h.pass(time.Second)
		assert.Equal(t, "2s ready 1", h.commands())
		assert.True(t, h.Started(id("1")))
		_, bad := h.Unhealthy(id("1"))
		assert.False(t, bad)
		h.RemovePod(pod)
		h.pass(time.Minute)
		assert.Empty(t, h.commands())
		assert.False(t, h.Started(id("1")))
	})
}

func TestSpecChanges(t *testing.T) {
	scenario(t, func(h *harness) {
		pod := podWith(v1.Container{
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 10}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 10}),
		})
		h.AddPod(pod)
		h.run("1")
		h.pass(time.Second)
		h.commands()
		assert.True(t, h.Ready(id("1")))

		changed := pod.DeepCopy()
		changed.Spec.Containers[0].ReadinessProbe = exec("ready2", v1.Probe{PeriodSeconds: 10})
		h.AddPod(changed)
		synctest.Wait()
		assert.True(t, h.Ready(id("1")), "until the new probe says otherwise")
		h.pass(10 * time.Second)
		assert.Equal(t, "1s ready2 1, 10s live 1, 11s ready2 1", h.commands(), "the other goes on undisturbed")

		gone := pod.DeepCopy()
		gone.Spec.Containers[0].ReadinessProbe, gone.Spec.Containers[0].LivenessProbe = nil, nil
		h.AddPod(gone)
		h.pass(time.Minute)
		assert.Empty(t, h.commands())
	})
}

func TestSidecarsAreProbedAndInitContainersAreNot(t *testing.T) {
	scenario(t, func(h *harness) {
		pod := podWith(v1.Container{})
		always := v1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []v1.Container{
			{Name: "side", RestartPolicy: &always, StartupProbe: exec("side", v1.Probe{})},
			{Name: "setup", StartupProbe: exec("setup", v1.Probe{})},
		}
		h.setStatus("u1", runtime.PodStatus{Containers: []runtime.ContainerStatus{
			{Container: runtime.Container{ID: id("s"), Name: "side", State: runtime.ContainerRunning}, StartedAt: time.Now()},
			{Container: runtime.Container{ID: id("i"), Name: "setup", State: runtime.ContainerRunning}, StartedAt: time.Now()},
		}})
		h.AddPod(pod)
		h.pass(time.Second)
		assert.Equal(t, "0s side s", h.commands())
		assert.True(t, h.Started(id("s")))
	})
}

func TestAfterARestartOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.set("u1", "1", runtime.ContainerRunning, time.Now().Add(-time.Hour))
		m, err := prober.New(n, n, prober.Options{Jitter: func() float64 { return 0.5 }})
		require.NoError(t, err)
		pod := podWith(v1.Container{
			StartupProbe:   exec("start", v1.Probe{PeriodSeconds: 10}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 10, FailureThreshold: 1}),
		})
		yes := true
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{
			Name: "app", ContainerID: "fake://1", Started: &yes, Ready: true,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}
		n.on("ready", 1)
		m.AddPod(pod) // before Run: held
		time.Sleep(time.Second)
		assert.Empty(t, n.commands())
		assert.True(t, m.Ready(id("1")), "as the API server has it")
		assert.True(t, m.Started(id("1")))

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
		time.Sleep(4 * time.Second)
		assert.Empty(t, n.commands(), "spread over the period")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, "6s ready 1", n.commands())
		assert.False(t, m.Ready(id("1")))
		cancel()
		wg.Wait()
		assert.ErrorIs(t, m.Run(ctx), runtime.ErrAlreadyRunning)
		m.AddPod(pod.DeepCopy()) // after Run: nothing is started
	})
}

// A reader that comes late finds the latest verdict of each probe, once.
func TestResultsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		m, err := prober.New(n, n, prober.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
		calls := int32(0)
		n.onCall("ready", func(context.Context) (int32, error) {
			calls++
			return calls % 2, nil // flaps: every second attempt succeeds
		})
		n.onCall("live", func(context.Context) (int32, error) { return 1, nil })
		m.AddPod(podWith(v1.Container{
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 1, FailureThreshold: 5}),
		}))
		n.set("u1", "1", runtime.ContainerRunning, time.Now())
		m.Notify("u1")
		time.Sleep(9500 * time.Millisecond) // ten attempts, the last a success
		synctest.Wait()

		assert.Equal(t, runtime.ProbeResult{
			Pod: runtime.PodRef{UID: "u1", Namespace: "default", Name: "web"}, Container: "app",
			ContainerID: id("1"), Kind: runtime.ReadinessProbe, Healthy: true,
		}, <-m.Results())
		assert.Equal(t, runtime.LivenessProbe, (<-m.Results()).Kind)
		synctest.Wait()
		select {
		case r := <-m.Results():
			t.Errorf("one more: %+v", r)
		default:
		}
		cancel()
		wg.Wait()
	})
}

func TestNewRefuses(t *testing.T) {
	_, err := prober.New(nil, nil, prober.Options{})
	assert.ErrorContains(t, err, "no runtime")
	assert.ErrorContains(t, err, "no reader")
}
