package cri_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func preStopExec(cmd string) *v1.Lifecycle {
	return &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{cmd}}}}
}

func preStopSleep(seconds int64) *v1.Lifecycle {
	return &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}}
}

func sidecarNamed(name string) v1.Container {
	c := containerNamed(name)
	always := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// endSlowly makes containers that start from now on take a time to end after the
// stop signal.
func (s *service) endSlowly(containers map[string]time.Duration) {
	for name, takes := range containers {
		s.Script(fake.Target{Container: name}, fake.Behavior{StopDelay: takes})
	}
}

func seconds(n int64) *int64 { return &n }

func TestKillPod(t *testing.T) {
	tests := []struct {
		name  string
		pod   func(*v1.Pod)
		exits map[string]time.Duration
		kill  func(*runtime.PodKill)
		want  []string
		// killed has the containers that were sent SIGKILL.
		killed []string
	}{
		{
			name: "containers, then the sandbox",
			want: []string{"StopContainer a 30", "StopPodSandbox s1"},
		},
		{
			name:   "SIGKILL after the grace period",
			exits:  map[string]time.Duration{"a": time.Hour},
			want:   []string{"StopContainer a 30", "30s StopPodSandbox s1"},
			killed: []string{"a"},
		},
		{
			name:  "an override",
			kill:  func(k *runtime.PodKill) { k.GracePeriod = seconds(5) },
			exits: map[string]time.Duration{"a": 3 * time.Second},
			want:  []string{"StopContainer a 5", "3s StopPodSandbox s1"},
		},
		{
			name:   "an override of 0 kills at once",
			pod:    func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = preStopExec("hook") },
			kill:   func(k *runtime.PodKill) { k.GracePeriod = seconds(0) },
			exits:  map[string]time.Duration{"a": time.Hour},
			want:   []string{"StopContainer a 0", "StopPodSandbox s1"},
			killed: []string{"a"},
		},
		{
			name: "the least grace",
			pod:  func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = seconds(1) },
			want: []string{"StopContainer a 2", "StopPodSandbox s1"},
		},
		{
			name: "a grace period that overflows a duration",
			pod:  func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = seconds(9_300_000_000) },
			want: []string{"StopContainer a 4611686018", "StopPodSandbox s1"},
		},
		{
			name: "one that would be 1 s",
			kill: func(k *runtime.PodKill) { k.GracePeriod = seconds(18_446_744_075) },
			want: []string{"StopContainer a 4611686018", "StopPodSandbox s1"},
		},
		{
			name: "a preStop hook that sleeps for long",
			pod: func(p *v1.Pod) {
				p.Spec.TerminationGracePeriodSeconds = seconds(9_300_000_000)
				p.Spec.Containers[0].Lifecycle = preStopSleep(18_446_744_075)
			},
			kill: func(k *runtime.PodKill) { k.GracePeriod = seconds(30) },
			want: []string{"30s StopContainer a 2", "30s StopPodSandbox s1"},
		},
		{
			name: "the preStop hook takes from the grace period",
			pod:  func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = preStopSleep(10) },
			want: []string{"10s StopContainer a 20", "10s StopPodSandbox s1"},
		},
		{
			name: "a preStop hook that does not end is left",
			pod:  func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = preStopSleep(100) },
			want: []string{"30s StopContainer a 2", "30s StopPodSandbox s1"},
		},
		{
			name: "sidecars after the main containers, in reverse order",
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{sidecarNamed("s1"), sidecarNamed("s2")}
			},
			exits: map[string]time.Duration{"a": 4 * time.Second, "s2": 3 * time.Second},
			want: []string{"StopContainer a 30", "4s StopContainer s2 26", "7s StopContainer s1 23",
				"7s StopPodSandbox s1"},
		},
		{
			name: "the hooks of sidecars run from the beginning",
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{sidecarNamed("s1")}
				p.Spec.InitContainers[0].Lifecycle = preStopExec("hook")
			},
			exits: map[string]time.Duration{"a": 4 * time.Second},
			want:  []string{"ExecSync hook", "StopContainer a 30", "4s StopContainer s1 26", "4s StopPodSandbox s1"},
		},
		{
			name: "a sidecar whose turn does not come in time",
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{sidecarNamed("s1")}
			},
			exits:  map[string]time.Duration{"a": time.Hour, "s1": time.Second},
			want:   []string{"StopContainer a 30", "30s StopContainer s1 2", "31s StopPodSandbox s1"},
			killed: []string{"a"},
		},
		{
			name: "from what was recorded, without a spec",
			pod: func(p *v1.Pod) {
				p.Spec.TerminationGracePeriodSeconds = seconds(17)
				p.Spec.Containers[0].Lifecycle = preStopSleep(2)
			},
			kill: func(k *runtime.PodKill) { k.Pod = nil },
			want: []string{"2s StopContainer a 15", "2s StopPodSandbox s1"},
		},
		{
			name: "the grace period of the deletion",
			pod:  func(p *v1.Pod) { p.DeletionGracePeriodSeconds = seconds(9) },
			want: []string{"StopContainer a 9", "StopPodSandbox s1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService(t, "app:1")
				pod := podOf("a")
				if tt.pod != nil {
					tt.pod(pod)
				}
				svc.endSlowly(tt.exits)
				s := running(t, svc, pod)
				kill := runtime.PodKill{Pod: s.pod, Status: s.status()}
				if tt.kill != nil {
					tt.kill(&kill)
				}
				require.NoError(t, s.rt.KillPod(t.Context(), kill))
				got := svc.calls()
				if tt.name == "the hooks of sidecars run from the beginning" {
					slices.Sort(got[:2]) // side by side
				}
				assert.Equal(t, tt.want, got)
				assert.False(t, s.status().Running())
				for _, name := range []string{"a", "s1"} {
					if c := svc.newest(name); c != nil {
						assert.Equal(t, slices.Contains(tt.killed, name), c.ExitCode == 128+9, name)
					}
				}
			})
		})
	}
}

func TestKillPodAgainWithLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		pod := podOf("a")
		pod.Spec.TerminationGracePeriodSeconds = seconds(3600)
		pod.Spec.Containers[0].Lifecycle = preStopExec("hook")
		svc.endSlowly(map[string]time.Duration{"a": 10 * time.Hour})
		s := running(t, svc, pod)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		err := s.rt.KillPod(ctx, runtime.PodKill{Pod: pod, Status: s.status()})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Minute, time.Since(began), "it returns at once")
		assert.True(t, s.status().Running(), "and kills nothing")

		require.NoError(t,
			s.rt.KillPod(t.Context(), runtime.PodKill{Pod: pod, Status: s.status(), GracePeriod: seconds(10)}))
		assert.Equal(t, 70*time.Second, time.Since(began))
		assert.Equal(t, []string{
			"ExecSync hook", "StopContainer a 3600", "1m0s StopContainer a 10", "1m10s StopPodSandbox s1",
		}, svc.calls(), "the hook has ended and is not run again")
	})
}

// A hook that does not end goes on while its container gets the stop signal at the end of the grace
// period, for 2 s. Sidecars are no exception, and do not wait for each other then.
func TestKillPodWithHooksThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		var (
			mu    sync.Mutex
			began time.Time
			took  []time.Duration
		)
		svc.Script(fake.Target{},
			fake.Behavior{IgnoresStop: true, Exec: func(ctx context.Context, _ []string) (runtime.ExecResult, error) {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
				return runtime.ExecResult{}, ctx.Err()
			}})
		svc.Script(fake.Target{Container: "a"}, fake.Behavior{})
		pod := podOf("a")
		for _, name := range []string{"s1", "s2", "s3"} {
			c := sidecarNamed(name)
			c.Lifecycle = preStopExec("hook")
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		s := running(t, svc, pod)
		began = time.Now()
		s.mustKill()
		const whole = 32 * time.Second
		assert.Equal(t, []time.Duration{whole, whole, whole}, took)
		got := svc.calls()
		slices.Sort(got)
		assert.Equal(t, []string{
			"30s StopContainer s1 2", "30s StopContainer s2 2", "30s StopContainer s3 2", "32s StopPodSandbox s1",
			"ExecSync hook", "ExecSync hook", "ExecSync hook", "StopContainer a 30",
		}, got)
		assert.Equal(t, int32(128+9), svc.newest("s1").ExitCode)
	})
}

func TestKillPodRepeatsAHookThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.Inject(fake.Fault{Call: "ExecSync", Delay: 5 * time.Second})
		pod := podOf("a")
		pod.Spec.Containers[0].Lifecycle = preStopExec("hook")
		s := running(t, svc, pod)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.ErrorIs(t, s.rt.KillPod(ctx, runtime.PodKill{Pod: pod, Status: s.status()}), context.DeadlineExceeded)
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: pod}))
		assert.Equal(t, []string{"ExecSync hook", "2s ExecSync hook", "7s StopContainer a 25", "7s StopPodSandbox s1"},
			svc.calls())
	})
}

func TestKillPodTellsOfFailures(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("a")
	pod.Spec.Containers[0].Lifecycle = preStopExec("hook")
	svc.answer(runtime.ExecResult{ExitCode: 1})
	s := running(t, svc, pod)
	svc.Inject(fake.Fault{Call: "StopContainer", Err: errors.New("shim is gone")})
	before := len(s.eventLines())
	err := s.rt.KillPod(t.Context(), runtime.PodKill{Pod: pod, Status: s.status(), Event: s.events.Event})
	assert.EqualError(t, err, "pod default/web(uid-1), container a: StopContainer: shim is gone")
	assert.Equal(t, []string{
		"spec.containers{a} Killing: Stopping container a",
		"spec.containers{a} FailedPreStopHook: PreStopHook failed",
	}, s.eventLines()[before:])
	assert.False(t, s.status().Running(), "the sandbox is stopped all the same")
	assert.Error(t, s.rt.KillPod(t.Context(), runtime.PodKill{}))
}

func TestLivenessFailureRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		pod := podOf("a", "b")
		pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: seconds(7)}
		svc.endSlowly(map[string]time.Duration{"a": 5 * time.Second})
		s := running(t, svc, pod)
		sick := s.status().Newest("a").ID
		s.more = func(req *runtime.PodSync) { req.Probes = unhealthy{sick} }
		s.mustSync()
		assert.Equal(t, []string{"StopContainer a 7", "5s CreateContainer a/1", "5s StartContainer a"}, svc.calls())
	})
}

type unhealthy struct{ id runtime.ContainerID }

func (unhealthy) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}
func (unhealthy) Started(runtime.ContainerID) bool { return true }
func (unhealthy) Ready(runtime.ContainerID) bool   { return true }
func (u unhealthy) Unhealthy(id runtime.ContainerID) (runtime.ProbeKind, bool) {
	return "liveness", id == u.id
}

func TestContainerThatCannotBeStoppedIsNotStartedTwice(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("a", "b")
	s := running(t, svc, pod)
	pod.Spec.Containers[0].Image, pod.Spec.Containers[1].Image = "app:2", "app:2"
	svc.AddImage(fake.Image{Name: "app:2"})
	svc.Inject(fake.Fault{Call: "StopContainer", Target: fake.Target{Container: "a"}, Err: errors.New("no answer")})
	_, err := s.sync()
	assert.EqualError(t, err, "pod default/web(uid-1), container a: StopContainer: no answer")
	got := svc.calls()
	slices.Sort(got[:2])
	assert.Equal(t, []string{"StopContainer a 30", "StopContainer b 30", "CreateContainer b/1", "StartContainer b"},
		got)
}
