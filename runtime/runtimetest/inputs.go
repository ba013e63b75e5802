package runtimetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// change changes a request.
type change func(req *runtime.PodSync)

// stepWith is step with a changed request.
func (e *env) stepWith(pod *v1.Pod, with change) (runtime.SyncResult, error) {
	e.Helper()
	req := e.request(pod, e.status(pod))
	with(&req)
	return e.Runtime.SyncPod(e.ctx, req)
}

// driveWith is drive with changed requests.
func (e *env) driveWith(pod *v1.Pod, what string, with change,
	cond func(s *runtime.PodStatus) bool) *runtime.PodStatus {
	e.Helper()
	return e.wait(pod, what, func(s *runtime.PodStatus) bool {
		e.Helper()
		if cond(s) {
			return true
		}
		_, err := e.stepWith(pod, with)
		require.NoError(e, err, "SyncPod")
		return false
	})
}

// names collects names. It is safe for concurrent use.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, name)
}

func (n *names) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

func testEditSandbox(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	var answer error
	calls := 0
	change := func(req *runtime.PodSync) {
		req.EditSandbox = func(context.Context) (runtime.SandboxEdits, error) {
			calls++
			return runtime.SandboxEdits{}, answer
		}
	}
	for _, answer = range []error{errors.New("no cgroup"), &runtime.WaitError{Reason: "NoCgroup",
		Message: "none yet"}} {
		_, err := e.stepWith(pod, change)
		require.ErrorIs(e, err, answer)
		s := e.status(pod)
		assert.Empty(e, s.Sandboxes, "nothing is made if EditSandbox fails")
		assert.Empty(e, s.Containers)
	}
	answer, calls = nil, 0
	e.driveWith(pod, "main runs", change, func(s *runtime.PodStatus) bool { return running(s, "main") })
	assert.Positive(e, calls, "EditSandbox was not called")
}

func testSandboxReady(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	var ready names
	change := func(req *runtime.PodSync) {
		req.SandboxReady = func(s runtime.SandboxStatus) { ready.add(s.ID) }
	}
	s := e.driveWith(pod, "main runs", change, func(s *runtime.PodStatus) bool { return running(s, "main") })
	require.NotNil(e, s.ReadySandbox())
	assert.Equal(e, []string{s.ReadySandbox().ID}, ready.list(), "called once for each sandbox")
	_, err := e.stepWith(pod, change)
	require.NoError(e, err)
	assert.Len(e, ready.list(), 1, "no sandbox was made")
}

func testEditContainer(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("held", e.Sleep), e.container("good", e.Sleep))
	var edited names
	var answer error
	change := func(req *runtime.PodSync) {
		req.EditContainer = func(_ context.Context, c *v1.Container) (runtime.ContainerEdits, error) {
			edited.add(c.Name)
			if c.Name == "held" {
				return runtime.ContainerEdits{}, answer
			}
			return runtime.ContainerEdits{}, nil
		}
	}
	for _, answer = range []error{errors.New("no device"), &runtime.WaitError{Reason: "NoDevice",
		Message: "none yet"}} {
		res, err := e.stepWith(pod, change)
		require.ErrorIs(e, err, answer)
		assert.NotEmpty(e, res.Waiting["held"].Reason)
		assert.NotContains(e, res.Waiting, "good")
		s := e.status(pod)
		assert.Nil(e, s.Newest("held"), "a container is not created if EditContainer fails")
		assert.True(e, running(s, "good"), "the other container is started: %s", describe(s))
	}
	answer = nil
	e.driveWith(pod, "held runs", change, func(s *runtime.PodStatus) bool { return running(s, "held") })
	assert.Contains(e, edited.list(), "good")
}

// testEditedEnvironment has edits that differ between two instances of a container.
func testEditedEnvironment(e *env) {
	c := e.container("main", e.Print("$(GREETING) from $(EDIT)"))
	c.Env = []v1.EnvVar{{Name: "GREETING", Value: "hello"}}
	pod := e.pod(v1.RestartPolicyAlways, c)
	change := func(req *runtime.PodSync) {
		value := "first"
		if req.Status.Newest("main") != nil {
			value = "second"
		}
		req.EditContainer = func(context.Context, *v1.Container) (runtime.ContainerEdits, error) {
			env := []v1.EnvVar{{Name: "EDIT", Value: value}, {Name: "GREETING", Value: "of the edit"}}
			return runtime.ContainerEdits{Env: env}, nil
		}
	}
	e.driveWith(pod, "the second instance has exited", change, func(s *runtime.PodStatus) bool {
		return exited(s, "main") && s.Newest("main").RestartCount == 1
	})
	assert.Equal(e, []string{"hello from first"}, e.readLog(e.logPath(pod, "main", "0.log")))
	assert.Equal(e, []string{"hello from second"}, e.readLog(e.logPath(pod, "main", "1.log")), "edits of the instance")
}

// testEnsureImage has an image that the runtime can find or pull.
func testEnsureImage(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	var mu sync.Mutex
	var asked []runtime.ImageRequest
	var answer *runtime.ImageError
	change := func(req *runtime.PodSync) {
		req.EnsureImage = func(ctx context.Context, r runtime.ImageRequest) (*runtime.Image, error) {
			mu.Lock()
			asked = append(asked, r)
			mu.Unlock()
			if answer != nil {
				return nil, answer
			}
			return runtime.EnsureImage(ctx, r)
		}
	}
	for _, answer = range []*runtime.ImageError{
		{Reason: runtime.ReasonSignatureValidation, Message: "it is not signed", RetryAfter: time.Minute},
		{Reason: runtime.ReasonImagePullBackOff, Message: "later", RetryAfter: time.Minute, BackingOff: true},
	} {
		res, err := e.stepWith(pod, change)
		assert.Equal(e, answer.BackingOff, err == nil, "%v: a back-off is not an error, a failure is one", err)
		assert.Equal(e, v1.ContainerStateWaiting{Reason: answer.Reason, Message: answer.Message}, res.Waiting["main"])
		assert.Positive(e, res.RetryAfter, "the time of the next attempt")
		assert.Nil(e, e.status(pod).Newest("main"), "a container is not created if EnsureImage fails")
	}
	answer = nil
	e.driveWith(pod, "main runs", change, func(s *runtime.PodStatus) bool { return running(s, "main") })
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(e, asked, "EnsureImage was not called")
	for _, r := range asked {
		assert.Equal(e, e.Image, r.Image)
		assert.Equal(e, v1.PullIfNotPresent, r.Policy)
		assert.Equal(e, "main", r.Container)
		assert.NotNil(e, r.Store)
	}
}

// probes are results of one kind of probe of one container.
type probes struct {
	container string
	kind      runtime.ProbeKind
	// unhealthy is the instance whose probe has failed. started means that startup probes have
	// succeeded.
	unhealthy runtime.ContainerID
	started   bool
}

func (p probes) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return c.Name == p.container && kind == p.kind
}

func (p probes) Started(runtime.ContainerID) bool { return p.started }

func (p probes) Ready(runtime.ContainerID) bool { return false }

func (p probes) Unhealthy(id runtime.ContainerID) (runtime.ProbeKind, bool) {
	return p.kind, id == p.unhealthy
}

func testUnhealthy(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("kept", e.Sleep), e.container("sick", e.Sleep))
	e.startReady(pod)
	before := e.status(pod)
	sick := before.Newest("sick").ID
	change := func(req *runtime.PodSync) {
		req.Probes = probes{container: "sick", kind: runtime.LivenessProbe, unhealthy: sick}
	}
	after := e.driveWith(pod, "the unhealthy container is restarted", change, func(s *runtime.PodStatus) bool {
		return running(s, "sick") && s.Newest("sick").ID != sick
	})
	assert.Equal(e, runtime.ContainerExited, after.ByID(sick).State)
	assert.Equal(e, before.Newest("kept").ID, after.Newest("kept").ID, "the others go on")
}

func testStartupProbe(e *env) {
	always := v1.ContainerRestartPolicyAlways
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	sidecar := e.container("sidecar", e.Sleep)
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []v1.Container{sidecar}
	results := probes{container: "sidecar", kind: runtime.StartupProbe}
	change := func(req *runtime.PodSync) { req.Probes = results }
	e.driveWith(pod, "the sidecar runs", change, func(s *runtime.PodStatus) bool { return running(s, "sidecar") })
	for range 3 {
		_, err := e.stepWith(pod, change)
		require.NoError(e, err)
	}
	assert.Nil(e, e.status(pod).Newest("main"), "it waits until the startup probe of the sidecar has succeeded")
	results.started = true
	e.driveWith(pod, "main runs", change, func(s *runtime.PodStatus) bool { return running(s, "main") })
}
