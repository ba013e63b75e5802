package prober_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// register is the annotation by which pods ask for a modbus probe.
const register = "example.com/modbus-register"

// modbus is a handler that makes a readiness probe of an annotation, and takes exec
// probes of the command "modbus" away from the default handler.
type modbus struct {
	mu   sync.Mutex
	seen []prober.Target
	// check is what Check does; nil succeeds.
	check func(ctx context.Context, t prober.Target) (prober.Outcome, string, error)
}

// uncomparable is a handler that == panics on.
type uncomparable struct {
	*modbus
	_ func()
}

func (*modbus) Name() string { return "modbus" }

func (*modbus) Probe(pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	if p := runtime.SpecProbe(c, kind); p != nil && p.Exec != nil && p.Exec.Command[0] == "modbus" {
		return p
	}
	if kind == runtime.ReadinessProbe && pod.Annotations[register] != "" {
		return &v1.Probe{PeriodSeconds: 5, TimeoutSeconds: 2, FailureThreshold: 1}
	}
	return nil
}

func (h *modbus) Check(ctx context.Context, t prober.Target) (prober.Outcome, string, error) {
	h.mu.Lock()
	h.seen = append(h.seen, t)
	check := h.check
	h.mu.Unlock()
	if check != nil {
		return check(ctx, t)
	}
	return prober.Success, "register " + t.Pod.Annotations[register], nil
}

func (h *modbus) on(check func(ctx context.Context, t prober.Target) (prober.Outcome, string, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.check = check
}

// targets returns what was checked and forgets it.
func (h *modbus) targets() []prober.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

func annotated(value string, c v1.Container) *v1.Pod {
	return testpod.With(podWith(c), testpod.Annotation(register, value))
}

func TestAHandlerOfOnesOwn(t *testing.T) {
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{uncomparable{modbus: h}}}, func(s *harness) {
		pod := annotated("40001", v1.Container{})
		c := &pod.Spec.Containers[0]
		assert.True(t, s.HasProbe(pod, c, runtime.ReadinessProbe), "though it is not in the spec")
		assert.False(t, s.HasProbe(pod, c, runtime.LivenessProbe))
		assert.False(t, s.HasProbe(podWith(v1.Container{}), c, runtime.ReadinessProbe))

		s.AddPod(pod)
		s.setStatus("u1", runtime.PodStatus{
			IPs: []string{"10.0.0.7"}, Containers: []runtime.ContainerStatus{*instance("1", runtime.ContainerRunning,
				time.Now())},
		})
		s.Notify("u1")
		s.pass(6 * time.Second)
		seen := h.targets()
		require.Len(t, seen, 2, "each 5 s")
		assert.Same(t, pod, seen[0].Pod)
		assert.Same(t, c, seen[0].Container)
		assert.Equal(t, id("1"), seen[0].ContainerID)
		assert.Equal(t, runtime.ReadinessProbe, seen[0].Kind)
		assert.Equal(t, 2*time.Second, seen[0].Timeout)
		assert.Equal(t, int32(5), seen[0].Probe.PeriodSeconds)
		address, err := seen[0].HostPort("", intstr.FromInt32(502))
		require.NoError(t, err)
		assert.Equal(t, "10.0.0.7:502", address)
		assert.True(t, s.Ready(id("1")))
		assert.Equal(t, "0s readiness 1 true", s.results())

		// What the probe does not show, a handler sees at the next attempt.
		changed := annotated("40002", v1.Container{})
		s.AddPod(changed)
		s.pass(3 * time.Second)
		assert.Empty(t, h.targets(), "the probe is as before")
		s.pass(2 * time.Second)
		seen = h.targets()
		require.Len(t, seen, 1)
		assert.Same(t, changed, seen[0].Pod)

		s.AddPod(podWith(v1.Container{}))
		s.pass(time.Minute)
		assert.Empty(t, h.targets(), "the annotation is gone")
	})
}

func TestHandlersAreTriedBeforeTheDefaultOnes(t *testing.T) {
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}}, func(s *harness) {
		s.AddPod(podWith(v1.Container{
			LivenessProbe:  exec("modbus", v1.Probe{PeriodSeconds: 60}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 60}),
		}))
		s.run("1")
		s.pass(time.Second)
		assert.Equal(t, "0s ready 1", s.commands())
		assert.Len(t, h.targets(), 1)
	})
}

func TestHandlersAreTriedForContainersThatKeepRunning(t *testing.T) {
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}}, func(s *harness) {
		pod := annotated("1", v1.Container{})
		testpod.Sidecar(v1.Container{Name: "side"})(pod)
		testpod.Init(v1.Container{Name: "setup"})(pod)
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
		var probed []string
		for _, c := range podspec.Containers(&pod.Spec) {
			if s.HasProbe(pod, c, runtime.ReadinessProbe) {
				probed = append(probed, c.Name)
			}
		}
		assert.Equal(t, []string{"side", "app"}, probed)
		var status runtime.PodStatus
		for _, c := range podspec.Containers(&pod.Spec) {
			status.Containers = append(status.Containers, runtime.ContainerStatus{
				Container: runtime.Container{ID: id(c.Name), Name: c.Name, State: runtime.ContainerRunning},
				StartedAt: time.Now(),
			})
		}
		s.setStatus("u1", status)
		s.AddPod(pod)
		s.pass(time.Second)
		assert.Len(t, h.targets(), 2)
		assert.True(t, s.Ready(id("side")) && s.Ready(id("app")))
	})
}

func TestAStartupProbeOfOnesOwn(t *testing.T) {
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}}, func(s *harness) {
		s.AddPod(podWith(v1.Container{
			StartupProbe:  exec("modbus", v1.Probe{PeriodSeconds: 3}),
			LivenessProbe: exec("live", v1.Probe{PeriodSeconds: 60}),
		}))
		h.on(func(context.Context, prober.Target) (prober.Outcome, string, error) { return prober.Failure, "", nil })
		s.run("1")
		s.pass(4 * time.Second)
		assert.Empty(t, s.commands(), "liveness waits for startup")
		h.on(nil)
		s.pass(4 * time.Second)
		assert.Equal(t, "6s live 1", s.commands())
		assert.True(t, s.Started(id("1")))
	})
}

func TestChecksOfAHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		check  func(ctx context.Context, t prober.Target) (prober.Outcome, string, error)
		event  string // of the first attempt, "" for none
		calls  int    // of the first attempt
		result string
	}{
		"success": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) {
				return prober.Success, "fine", nil
			},
			calls: 1, result: "0s readiness 1 true",
		},
		"warning": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) {
				return prober.Warning, "hot", nil
			},
			calls: 1, event: "ProbeWarning: Readiness probe warning: hot", result: "0s readiness 1 true",
		},
		"failure": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) {
				return prober.Failure, "dead", nil
			},
			calls: 1, event: "Unhealthy: Readiness probe failed: dead",
		},
		"timeout": {
			check: func(ctx context.Context, _ prober.Target) (prober.Outcome, string, error) {
				<-ctx.Done()
				return prober.Success, "", ctx.Err()
			},
			calls: 1, event: "Unhealthy: Readiness probe failed: modbus probe timed out after 2s",
		},
		"error": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) {
				return prober.Success, "", errors.New("no bus")
			},
			calls: 3, event: "Unhealthy: Readiness probe errored and resulted in unknown state: handler modbus: no bus",
		},
		"unknown": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) {
				return prober.Unknown, "no bus", nil
			},
			calls: 3,
			event: `Unhealthy: Readiness probe errored and resulted in unknown state: handler modbus: outcome "unknown": no bus`,
		},
		"no outcome": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) { return "", "", nil },
			calls: 3,
			event: `Unhealthy: Readiness probe errored and resulted in unknown state: handler modbus: outcome "": `,
		},
		"panic": {
			check: func(context.Context, prober.Target) (prober.Outcome, string, error) { panic("off by one") },
			calls: 3, event: "Unhealthy: Readiness probe errored and resulted in unknown state: handler modbus: " +
				"panic: off by one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &modbus{check: tc.check}
			scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}}, func(s *harness) {
				s.AddPod(annotated("1", v1.Container{}))
				s.run("1")
				s.pass(4 * time.Second) // less than a period
				assert.Len(t, h.targets(), tc.calls)
				assert.Equal(t, tc.result, s.results())
				if tc.event == "" {
					assert.Empty(t, s.events)
				} else {
					assert.Equal(t, []string{"default/web(u1) spec.containers{app} Warning " + tc.event}, s.events)
				}
			})
		})
	}
}

// A handler may call the manager, and may not keep it from ending.
func TestAHandlerThatCallsBack(t *testing.T) {
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}}, func(s *harness) {
		pod := annotated("1", v1.Container{})
		h.on(func(ctx context.Context, t prober.Target) (prober.Outcome, string, error) {
			s.Ready(t.ContainerID)
			s.RemovePod(t.Pod)
			<-ctx.Done()
			return prober.Failure, "too late", nil
		})
		s.AddPod(pod)
		s.run("1")
		s.pass(time.Minute)
		assert.Len(t, h.targets(), 1)
		assert.Empty(t, s.results())
		assert.Empty(t, s.events)
	})
}

// broken panics when it is asked for a probe.
type broken struct{ modbus }

func (*broken) Probe(*v1.Pod, *v1.Container, runtime.ProbeKind) *v1.Probe { panic("nil map") }

func TestAHandlerThatPanics(t *testing.T) {
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{&broken{}}}, func(s *harness) {
		pod := podWith(v1.Container{})
		assert.True(t, s.HasProbe(pod, &pod.Spec.Containers[0], runtime.ReadinessProbe),
			"so that the pod does not become ready")
		s.AddPod(pod)
		s.run("1")
		s.pass(time.Second)
		require.NotEmpty(t, s.events)
		assert.Contains(t, s.events[0], "handler modbus: method Probe: panic: nil map")
		assert.False(t, s.Ready(id("1")))
	})
}

func TestAProbeWithoutHandler(t *testing.T) {
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{&modbus{}}}, func(s *harness) {
		pod := podWith(v1.Container{ReadinessProbe: &v1.Probe{}})
		assert.True(t, s.HasProbe(pod, &pod.Spec.Containers[0], runtime.ReadinessProbe))
		s.AddPod(pod)
		s.run("1")
		s.pass(time.Second)
		assert.Equal(t, []string{"default/web(u1) spec.containers{app} Warning Unhealthy: Readiness probe errored " +
			"and resulted in unknown state: " +
			`no handler makes the readinessProbe of container "app"; there are handlers for modbus, exec, httpGet, tcpSocket, grpc`}, s.events)
		assert.False(t, s.Ready(id("1")))
		assert.Empty(t, s.results())
	})
}

func TestEvents(t *testing.T) {
	scenario(t, func(s *harness) {
		s.on("live", 1)
		s.onCall("ready", func(context.Context) (int32, error) { return 0, errors.New("no connection") })
		pod := podWith(v1.Container{
			LivenessProbe:  exec("live", v1.Probe{PeriodSeconds: 1, FailureThreshold: 2}),
			ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 60, InitialDelaySeconds: 5}),
		})
		pod.Spec.InitContainers = testpod.New("", testpod.Sidecar(v1.Container{
			Name: "side", StartupProbe: exec("start", v1.Probe{PeriodSeconds: 60, InitialDelaySeconds: 10}),
		})).Spec.InitContainers
		s.on("start", 1)
		s.AddPod(pod)
		s.setStatus("u1", runtime.PodStatus{Containers: []runtime.ContainerStatus{
			{Container: runtime.Container{ID: id("s"), Name: "side", State: runtime.ContainerRunning}, StartedAt: time.Now()},
			*instance("1", runtime.ContainerRunning, time.Now()),
		}})
		s.Notify("u1")
		s.pass(20 * time.Second)
		const app, side = "default/web(u1) spec.containers{app} Warning Unhealthy: ",
			"default/web(u1) spec.initContainers{side} Warning Unhealthy: "
		assert.Equal(t, []string{
			app + "Liveness probe failed: the command exited with code 1 and no output",
			app + "Liveness probe failed: the command exited with code 1 and no output",
			app + "Readiness probe errored and resulted in unknown state: no connection",
			side + "Startup probe failed: the command exited with code 1 and no output",
		}, s.events)
	})
}

// tally keeps what is measured.
type tally struct {
	mu    sync.Mutex
	lines []string
}

func (m *tally) measure(v runtime.Measurement) {
	switch v := v.(type) {
	case prober.Attempt:
		p := v.Probe
		m.add(fmt.Sprintf("%s/%s/%s %s %v", p.Pod.Name, p.Container, p.Kind, v.Outcome, v.Took))
	case prober.ProbeRemoved:
		p := v.Probe
		m.add(fmt.Sprintf("%s/%s/%s removed", p.Pod.Name, p.Container, p.Kind))
	}
}

func (m *tally) add(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
}

func (m *tally) take() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.lines
	m.lines = nil
	return strings.Join(lines, ", ")
}

func TestMetrics(t *testing.T) {
	m := &tally{}
	scenarioWith(t, prober.Options{Observer: runtime.Observer{Measure: m.measure}}, func(s *harness) {
		s.onCall("ready", func(context.Context) (int32, error) {
			time.Sleep(250 * time.Millisecond)
			return 0, nil
		})
		pod := podWith(v1.Container{ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1})})
		s.AddPod(pod)
		s.run("1")
		s.pass(500 * time.Millisecond)
		assert.Equal(t, "web/app/readiness success 250ms", m.take())
		s.on("ready", 1)
		s.pass(time.Second)
		assert.Equal(t, "web/app/readiness failure 0s", m.take())
		s.onCall("ready", func(context.Context) (int32, error) { return 0, errors.New("no connection") })
		s.pass(time.Second)
		assert.Equal(t, "web/app/readiness unknown 0s", m.take())

		replaced := podWith(v1.Container{ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 2})})
		s.AddPod(replaced)
		synctest.Wait()
		assert.NotContains(t, m.take(), "removed", "its successor has the same labels")
		s.onCall("ready", func(ctx context.Context) (int32, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		s.pass(3 * time.Second)
		m.take()
		s.RemovePod(replaced)
		synctest.Wait()
		assert.Equal(t, "web/app/readiness removed", m.take(), "an interrupted attempt does not count")
	})
}

// The address of a pod is the one of the host's family.
func TestTargetAddress(t *testing.T) {
	both := []string{"10.0.0.1", "fd00::1"}
	for _, tc := range []struct {
		hostNetwork bool
		ips         []string
		hostIPs     []string
		want        string
	}{
		{false, both, []string{"192.0.2.1"}, "10.0.0.1"},
		{false, both, nil, "10.0.0.1"},
		{false, both, []string{"2001:db8::1"}, "fd00::1"},
		{false, both[1:], []string{"192.0.2.1"}, "fd00::1"},
		{false, nil, []string{"192.0.2.1"}, ""},
		{true, nil, []string{"192.0.2.1"}, "192.0.2.1"},
		{true, both, nil, "127.0.0.1"},
	} {
		h := &modbus{}
		scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}, HostIPs: func() []string { return tc.hostIPs }},
			func(s *harness) {
				pod := annotated("1", v1.Container{})
				pod.Spec.HostNetwork = tc.hostNetwork
				s.AddPod(pod)
				s.setStatus("u1", runtime.PodStatus{
					IPs: tc.ips, Containers: []runtime.ContainerStatus{*instance("1", runtime.ContainerRunning,
						time.Now())},
				})
				s.Notify("u1")
				s.pass(time.Second)
				seen := h.targets()
				require.Len(t, seen, 1)
				assert.Equal(t, tc.want, seen[0].Address, "%+v", tc)
			})
	}
}

// A pod on the host's network is probed at the address that the host has at that time.
func TestTargetAddressOfAHostThatGetsAnAddress(t *testing.T) {
	var ips atomic.Pointer[[]string]
	ips.Store(new([]string))
	h := &modbus{}
	scenarioWith(t, prober.Options{Handlers: []prober.Handler{h}, HostIPs: func() []string { return *ips.Load() }},
		func(s *harness) {
			pod := annotated("1", v1.Container{})
			pod.Spec.HostNetwork = true
			s.AddPod(pod)
			s.setStatus("u1",
				runtime.PodStatus{Containers: []runtime.ContainerStatus{*instance("1", runtime.ContainerRunning,
					time.Now())}})
			s.Notify("u1")
			s.pass(time.Second)
			seen := h.targets()
			require.NotEmpty(t, seen)
			assert.Equal(t, "127.0.0.1", seen[len(seen)-1].Address, "no address is known")
			for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
				ips.Store(&[]string{ip})
				s.pass(time.Minute)
				seen = h.targets()
				assert.Equal(t, ip, seen[len(seen)-1].Address)
			}
		})
}

func TestNilHandler(t *testing.T) {
	_, err := prober.New(newNode(), newNode(), prober.Options{Handlers: []prober.Handler{nil}})
	assert.ErrorContains(t, err, "Options.Handlers[0] is nil")
}

// An attempt in a container that has ended meanwhile is no event.
func TestAContainerThatEndsDuringAnAttempt(t *testing.T) {
	scenario(t, func(h *harness) {
		h.onCall("ready",
			func(context.Context) (int32, error) { return 0, fmt.Errorf("it has ended: %w", runtime.ErrNotFound) })
		h.AddPod(podWith(v1.Container{ReadinessProbe: exec("ready", v1.Probe{})}))
		h.run("1")
		h.pass(time.Minute)
		assert.Empty(t, h.events)
		assert.Empty(t, h.results())
	})
}
