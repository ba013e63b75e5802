package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// obstacle has the call of that name hang until it is removed.
type obstacle struct {
	call    string
	removed chan struct{}
}

func (o *obstacle) hang(ctx context.Context, call string) error {
	if call != o.call {
		return nil
	}
	select {
	case <-o.removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The parts of an agent that an obstacle can be in.
type (
	slowComponent struct{ *obstacle }
	slowDevices   struct {
		devices.Provider
		*obstacle
	}
	slowVolume  struct{ *obstacle }
	slowObjects struct {
		objects.Source
		*obstacle
	}
	slowTokens struct{ *obstacle }
)

func (slowComponent) Name() string { return "slow" }
func (c slowComponent) Prepare(ctx context.Context, _ lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return lifecycle.PrepareResponse{}, c.hang(ctx, "Prepare")
}
func (c slowComponent) EditSandbox(ctx context.Context, _ *v1.Pod) (runtime.SandboxEdits, error) {
	return runtime.SandboxEdits{}, c.hang(ctx, "EditSandbox")
}
func (c slowComponent) EditContainer(ctx context.Context, _ *v1.Pod, _ *v1.Container) (runtime.ContainerEdits, error) {
	return runtime.ContainerEdits{}, c.hang(ctx, "EditContainer")
}
func (c slowComponent) Running(ctx context.Context, _ *v1.Pod, _ *runtime.PodStatus) error {
	return c.hang(ctx, "Running")
}
func (c slowComponent) Stopped(ctx context.Context, _ lifecycle.EndedRequest) error {
	return c.hang(ctx, "Stopped")
}
func (c slowComponent) Ended(ctx context.Context, _ lifecycle.EndedRequest) error {
	return c.hang(ctx, "Ended")
}

func (d slowDevices) Prefer(ctx context.Context, _ devices.PreferRequest) ([]string, error) {
	return nil, d.hang(ctx, "Prefer")
}
func (d slowDevices) Allocate(ctx context.Context, req devices.Request) (runtime.ContainerEdits, error) {
	if err := d.hang(ctx, "Allocate"); err != nil {
		return runtime.ContainerEdits{}, err
	}
	return d.Provider.Allocate(ctx, req)
}
func (d slowDevices) PreStart(ctx context.Context, _ devices.Request) error {
	return d.hang(ctx, "PreStart")
}

func (slowVolume) Name() string               { return "example.com/slow" }
func (slowVolume) Supports(v *v1.Volume) bool { return v.FlexVolume != nil }
func (s slowVolume) SetUp(ctx context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	return runtime.Volume{HostPath: req.StateDir}, s.hang(ctx, "SetUp")
}
func (s slowVolume) TearDown(ctx context.Context, _ volume.TearDownRequest) error {
	return s.hang(ctx, "TearDown")
}

func (o slowObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if err := o.hang(ctx, "Secret"); err != nil {
		return nil, err
	}
	return o.Source.Secret(ctx, namespace, name)
}

func (s slowTokens) Token(ctx context.Context, _, _ string,
	req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	err := s.hang(ctx, "Token")
	req = req.DeepCopy()
	req.Status.Token = "token"
	return req, err
}

// slowPod needs all that can be slow.
func slowPod() *v1.Pod {
	pod := fake.Pods(1, 2)[0]
	pod.Spec.TerminationGracePeriodSeconds, pod.Spec.ServiceAccountName = new(int64(100)), "default"
	pod.Spec.Volumes = []v1.Volume{
		{Name: "flex", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/slow"}}},
		{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
		}}}},
	}
	exec := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	c := &pod.Spec.Containers[0]
	c.Lifecycle = &v1.Lifecycle{PostStart: exec, PreStop: exec}
	c.Resources.Limits = v1.ResourceList{"example.com/port": resource.MustParse("1")}
	c.EnvFrom = []v1.EnvFromSource{
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "key"}}}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "flex", MountPath: "/flex"}, {Name: "token", MountPath: "/token"}}
	return pod
}

// configure puts the obstacle into all parts of the agent.
func (o *obstacle) configure(t *testing.T, opts *kubeletkit.Options) {
	provider := devices.Fixed("example.com/port", map[string]runtime.ContainerEdits{"a": {}, "b": {}})
	manager, err := devices.New(filepath.Join(opts.RootDir, "devices"),
		devices.Options{Providers: []devices.Provider{slowDevices{provider, o}}})
	require.NoError(t, err)
	store := objects.New()
	key := &v1.Secret{}
	key.Namespace, key.Name = "default", "key"
	store.Set(key)
	opts.Join = []lifecycle.Component{slowComponent{o}, manager}
	opts.Volumes.Plugins = []volume.Plugin{slowVolume{o}}
	opts.API.Objects, opts.API.Tokens = slowObjects{store, o}, slowTokens{o}
	opts.API.PullSecrets = func(ctx context.Context, _ *v1.Pod) ([]v1.Secret,
		error) {
		return nil, o.hang(ctx, "PullSecrets")
	}
	opts.API.ServiceEnv = func(ctx context.Context, _ *v1.Pod) ([]v1.EnvVar,
		error) {
		return nil, o.hang(ctx, "ServiceEnv")
	}
}

// What a pod waits for is named after 5 s, whatever it is, in the messages of its containers and by one event. When it
// ends, the message goes.
func TestWhatAPodWaitsForIsNamed(t *testing.T) {
	for call, want := range map[string]string{
		"Prepare":       "component slow, step Prepare",
		"EditSandbox":   "component slow, step EditSandbox",
		"EditContainer": "component slow, step EditContainer",
		"Running":       "component slow, step Running",
		"Stopped":       "component slow, step Stopped",
		"Ended":         "component slow, step Ended",
		"Prefer":        "component devices, step Prepare: GetPreferredAllocation of the provider of example.com/port",
		"Allocate":      "component devices, step Prepare: Allocate of the provider of example.com/port",
		"PreStart":      "component devices, step EditContainer: PreStartContainer of the provider of example.com/port",
		"SetUp":         "component volumes, step Prepare: volume flex",
		"TearDown":      "component volumes, step Ended: volume flex",
		"Token":         "component volumes, step Prepare: volume token",
		"Secret":        "secret default/key",
		"PullSecrets":   "component pull secrets, step Prepare",
		"ServiceEnv":    "component service variables, step EditContainer",
		// These are calls of the runtime.
		"PullImage":       "image image:1: CRI call PullImage",
		"RunPodSandbox":   "CRI call RunPodSandbox",
		"CreateContainer": "CRI call CreateContainer",
		"StartContainer":  "CRI call StartContainer",
		"ExecSync":        "postStart hook of container c0: CRI call ExecSync",
		"ExecSync ":       "preStop hook of container c0: CRI call ExecSync",
		"StopContainer":   "CRI call StopContainer",
	} {
		t.Run(call, func(t *testing.T) {
			o := &obstacle{call: call}
			ends := map[string]bool{"Stopped": true, "Ended": true, "TearDown": true, "ExecSync ": true,
				"StopContainer": true}[call]
			var mu sync.Mutex
			var events []string
			named := func() []string {
				mu.Lock()
				defer mu.Unlock()
				return events
			}
			agenttest.Run(t, agenttest.Options{Configure: func(_ *agenttest.Node, opts *kubeletkit.Options) {
				o.removed = make(chan struct{}) // in the bubble
				o.configure(t, opts)
				opts.Observe.EveryEvent = func(e runtime.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Reason == "WaitingForStep" {
						events = append(events, e.Message)
					}
				}
			}}, func(t *testing.T, n *agenttest.Node) {
				n.Sleep(time.Millisecond) // the provider has listed its devices
				pod := slowPod()
				if ends {
					n.Source.Set(pod)
					n.Sleep(time.Second)
					require.Equal(t, v1.PodRunning, n.Pods()[0].Status.Phase)
				}
				remove := n.Runtime.Inject(fake.Fault{Call: strings.TrimSpace(call), Hang: true})
				if ends {
					n.Source.Set()
				} else {
					n.Source.Set(pod)
				}
				n.Sleep(4500 * time.Millisecond)
				assert.Empty(t, named(), "it is too early")
				n.Sleep(3 * time.Second)
				require.Len(t, named(), 1)
				assert.True(t, strings.HasPrefix(named()[0], "waiting for "+want+", since 2000-01-01T00:00:0"),
					named()[0])
				n.Sleep(10 * time.Second)
				assert.Len(t, named(), 1, "there is one event")
				messages := func() (out []string) {
					for _, pod := range n.Pods() {
						for _, c := range pod.Status.ContainerStatuses {
							if w := c.State.Waiting; w != nil && w.Message != "" {
								assert.Equal(t, "ContainerCreating", w.Reason)
								out = append(out, w.Message)
							}
						}
					}
					return out
				}
				if !ends && call != "Running" && call != "ExecSync" { // then c0 runs
					assert.Contains(t, messages(), named()[0])
				}
				close(o.removed)
				remove()
				n.Sleep(30 * time.Second)
				assert.Empty(t, messages())
				if ends {
					assert.Empty(t, n.Terminating())
				} else {
					assert.Equal(t, v1.PodRunning, n.Pods()[0].Status.Phase)
					n.Source.Set() // unmounts its volumes
					n.Sleep(3 * time.Minute)
				}
			})
		})
	}
}

// Steps that are quick are not named.
func TestQuickStepsAreNotNamed(t *testing.T) {
	agenttest.Run(t, agenttest.Options{Configure: func(_ *agenttest.Node, opts *kubeletkit.Options) {
		(&obstacle{}).configure(t, opts)
		opts.Observe.EveryEvent = func(e runtime.Event) { assert.NotEqual(t, "WaitingForStep", e.Reason) }
	}}, func(_ *testing.T, n *agenttest.Node) {
		n.Runtime.Inject(fake.Fault{Delay: 200 * time.Millisecond})
		n.Source.Set(slowPod())
		n.Sleep(10 * time.Minute)
		n.Source.Set()
		n.Sleep(3 * time.Minute)
	})
}
