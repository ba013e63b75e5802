package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

func testNode() *translate.Node { return &translate.Node{MemoryCapacity: 1 << 30, CgroupV2: true} }

// podOf returns a pod of the named containers, all of image "app:1".
func podOf(names ...string) *v1.Pod {
	grace := int64(30)
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
		DNSPolicy: v1.DNSDefault, SecurityContext: &v1.PodSecurityContext{},
	}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "uid-1"
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, containerNamed(name))
	}
	return pod
}

func containerNamed(name string) v1.Container {
	return v1.Container{
		Name: name, Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}
}

// syncer syncs one pod as an agent does: each time from a fresh status.
type syncer struct {
	t    *testing.T
	rt   *Runtime
	pod  *v1.Pod
	dir  string
	more func(*runtime.PodSync)
	// event receives the events of sync.
	event runtime.EventFunc
}

func newSyncer(t *testing.T, rt *Runtime, pod *v1.Pod) *syncer {
	return &syncer{t: t, rt: rt, pod: pod, dir: t.TempDir()}
}

func (s *syncer) status() *runtime.PodStatus {
	s.t.Helper()
	st, err := s.rt.InspectPod(s.t.Context(), runtime.RefOf(s.pod))
	require.NoError(s.t, err)
	return st
}

func (s *syncer) request() runtime.PodSync {
	req := runtime.PodSync{
		Pod: s.pod, Status: s.status(), Dir: filepath.Join(s.dir, "pod"), Event: s.event,
		Host: &runtime.Host{NodeName: "n1", Hostname: "n1", IPs: []string{"192.0.2.1"}, PodLogsDir: filepath.Join(s.dir, "logs")},
	}
	if s.more != nil {
		s.more(&req)
	}
	return req
}

func (s *syncer) sync() (runtime.SyncResult, error) {
	s.t.Helper()
	return s.rt.SyncPod(s.t.Context(), s.request())
}

func (s *syncer) mustSync() runtime.SyncResult {
	s.t.Helper()
	res, err := s.sync()
	require.NoError(s.t, err)
	return res
}

func TestColdStartMakesTheFewestCalls(t *testing.T) {
	svc := newService("app:1")
	s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
	res := s.mustSync()
	assert.True(t, res.Changed)
	assert.Empty(t, res.Waiting)
	assert.Zero(t, res.RetryAfter)
	assert.ElementsMatch(t, []string{
		"Version", "ListPodSandbox", "ListContainers", // the inspection
		"RunPodSandbox web/0", "ImageStatus app:1", "PodSandboxStatus s1", "CreateContainer a/0", "StartContainer a",
	}, svc.calls(true))

	st := s.status()
	assert.ElementsMatch(t, []string{"ListPodSandbox", "ListContainers", "ContainerStatus c2"}, svc.calls(true))
	assert.Equal(t, []string{"10.0.0.7", "fd00::7"}, st.IPs)
	res, err := s.rt.SyncPod(t.Context(), runtime.PodSync{Pod: s.pod, Status: st, Host: &runtime.Host{}})
	require.NoError(t, err)
	assert.False(t, res.Changed)
	assert.Empty(t, svc.calls(true), "a pod that is as it should be costs nothing")
}

func TestHostNetworkNeedsNoSandboxStatus(t *testing.T) {
	svc := newService("app:1")
	pod := podOf("a")
	pod.Spec.HostNetwork = true
	newSyncer(t, svc.runtime(Options{}), pod).mustSync()
	assert.NotContains(t, svc.calls(true), "PodSandboxStatus s1")
}

func TestStartsInSpecOrderAndSharesImages(t *testing.T) {
	svc := newService("app:1")
	rec := &events{}
	pod := podOf("b", "a")
	pod.Spec.InitContainers = []v1.Container{containerNamed("init")}
	s := newSyncer(t, svc.runtime(Options{}), pod)
	s.event = rec.event

	s.mustSync()
	assert.Equal(t, []string{"RunPodSandbox web/0", "CreateContainer init/0", "StartContainer init"}, svc.calls())
	assert.Equal(t, []string{
		`spec.initContainers{init} Pulled: Container image "app:1" already present on machine`,
		"spec.initContainers{init} Created: Container created",
		"spec.initContainers{init} Started: Container started",
	}, rec.take())
	svc.exit("init", 0)
	s.mustSync()
	all := svc.calls(true)
	assert.Equal(t, []string{"CreateContainer b/0", "StartContainer b", "CreateContainer a/0", "StartContainer a"}, all[len(all)-4:])
	n := 0
	for _, c := range all {
		if c == "ImageStatus app:1" {
			n++
		}
	}
	assert.Equal(t, 1, n, "an image is looked for once in a sync")
}

func TestOneBadContainerLeavesTheOthers(t *testing.T) {
	svc := newService("app:1")
	pod := podOf("missing", "config", "create", "start", "good")
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "other:1", v1.PullNever
	pod.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "nowhere", MountPath: "/x"}}
	svc.before = func(_ context.Context, method, about string) error {
		switch method + " " + about {
		case "CreateContainer create/0":
			return status.Error(codes.Unknown, "no space left")
		case "StartContainer start":
			return status.Error(codes.Unknown, "exec format error")
		}
		return nil
	}
	s := newSyncer(t, svc.runtime(Options{}), pod)
	res, err := s.sync()
	require.Error(t, err)
	assert.ErrorContains(t, err, "pod default/web(uid-1), container create: CreateContainerError: CreateContainer: no space left")
	reasons := map[string]string{}
	for name, w := range res.Waiting {
		reasons[name] = w.Reason
	}
	assert.Equal(t, map[string]string{
		"missing": "ErrImageNeverPull", "config": "CreateContainerConfigError",
		"create": "CreateContainerError", "start": "RunContainerError",
	}, reasons)
	assert.Equal(t, "exec format error", res.Waiting["start"].Message)
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, svc.byName("good").state)
	logs, err := filepath.Glob(filepath.Join(s.dir, "pod", "containers", "create", "*"))
	require.NoError(t, err)
	assert.Empty(t, logs, "no termination log stays behind")
}

func TestSandboxFailure(t *testing.T) {
	svc := newService("app:1")
	rec := &events{}
	svc.before = func(_ context.Context, method, _ string) error {
		if method == "RunPodSandbox" {
			return status.Error(codes.Unknown, "no CNI configuration")
		}
		return nil
	}
	s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
	s.event = rec.event
	res, err := s.sync()
	assert.ErrorContains(t, err, "CreatePodSandboxError: pod default/web(uid-1): RunPodSandbox: no CNI configuration")
	assert.True(t, res.Changed)
	assert.Contains(t, rec.take(), "FailedCreatePodSandBox: Failed to create pod sandbox: no CNI configuration")
	assert.Nil(t, svc.byName("a"))
}

// A pod that is removed while it starts has not failed.
func TestWhatIsCancelledIsNoFailure(t *testing.T) {
	for _, at := range []string{"RunPodSandbox", "ImageStatus", "CreateContainer", "StartContainer"} {
		t.Run(at, func(t *testing.T) {
			svc := newService("app:1")
			rec := &events{}
			ctx, cancel := context.WithCancel(t.Context())
			svc.before = func(_ context.Context, method, _ string) error {
				if method != at {
					return nil
				}
				cancel()
				return status.Error(codes.Canceled, "context canceled")
			}
			s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
			s.event = rec.event
			_, err := s.rt.SyncPod(ctx, s.request())
			require.ErrorIs(t, err, context.Canceled)
			for _, e := range rec.take() {
				assert.NotContains(t, e, "ailed")
			}
		})
	}
}

// The owner of a pod does not learn how the host looks; who reads the log does.
func TestCauseOfASubPathErrorIsLogged(t *testing.T) {
	svc := newService("app:1")
	pod := podOf("a")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "s"}}
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	s := newSyncer(t, svc.runtime(Options{Logger: log}), pod)
	in := s.request()
	in.Volumes = map[string]runtime.Volume{"v": {HostPath: "/host"}}
	in.SubPath = func(context.Context, runtime.SubPath) (string, error) {
		return "", errors.New("/host/s leads out of it")
	}
	res, err := s.rt.SyncPod(t.Context(), in)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "/host/s")
	assert.NotContains(t, res.Waiting["a"].Message, "/host/s")
	require.Len(t, logged, 1)
	assert.Contains(t, logged[0], "/host/s leads out of it")
	assert.Contains(t, logged[0], `"container"="a"`)
}

func TestDeadSandboxIsReplaced(t *testing.T) {
	svc := newService("app:1")
	s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
	s.mustSync()
	svc.sandboxes["s1"].state = criv1.PodSandboxState_SANDBOX_NOTREADY
	svc.exit("a", 137)
	svc.calls()
	s.mustSync()
	assert.Equal(t, []string{"StopPodSandbox s1", "RunPodSandbox web/1", "CreateContainer a/1", "StartContainer a"}, svc.calls())
	st := s.status()
	require.Len(t, st.Sandboxes, 2)
	assert.Equal(t, uint32(1), st.Sandboxes[0].Attempt)
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("app:1")
		rec := &events{}
		s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
		s.event = rec.event
		s.mustSync()
		svc.exit("a", 1)
		s.mustSync() // the first restart is at once
		svc.exit("a", 1)
		rec.take()
		res := s.mustSync()
		assert.Equal(t, 10*time.Second, res.RetryAfter)
		assert.Equal(t, "CrashLoopBackOff", res.Waiting["a"].Reason)
		assert.False(t, res.Changed)
		assert.Equal(t, []string{"spec.containers{a} BackOff: Back-off restarting failed container a in pod default/web(uid-1)"}, rec.take())

		time.Sleep(res.RetryAfter)
		res = s.mustSync()
		assert.True(t, res.Changed)
		assert.Empty(t, res.Waiting)
		svc.exit("a", 1)
		assert.Equal(t, 20*time.Second, s.mustSync().RetryAfter)

		// A pod that was killed is forgotten: what comes with its UID starts anew.
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()}))
		assert.Empty(t, s.rt.pods.pods)
	})
}

func TestRestartCountSurvivesTheRuntimesState(t *testing.T) {
	svc := newService("app:1")
	s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
	dir := filepath.Join(s.dir, "logs", "default_web_uid-1", "a")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "4.log"), nil, 0o600))
	s.mustSync()
	assert.Equal(t, int32(5), s.status().Newest("a").RestartCount)
}

func TestPostStart(t *testing.T) {
	pod := podOf("a", "b")
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}

	t.Run("the next container waits for it", func(t *testing.T) {
		svc := newService("app:1")
		newSyncer(t, svc.runtime(Options{}), pod).mustSync()
		assert.Equal(t, []string{"RunPodSandbox web/0", "CreateContainer a/0", "StartContainer a", "ExecSync hook", "CreateContainer b/0", "StartContainer b"}, svc.calls())
	})
	t.Run("its failure kills the container", func(t *testing.T) {
		svc := newService("app:1")
		rec := &events{}
		svc.exec = func(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
			return &criv1.ExecSyncResponse{ExitCode: 3, Stderr: []byte("secret\n")}, nil
		}
		s := newSyncer(t, svc.runtime(Options{}), pod)
		s.event = rec.event
		res, err := s.sync()
		require.Error(t, err)
		assert.Equal(t, v1.ContainerStateWaiting{Reason: "PostStartHookError", Message: `postStart hook: exec ["hook"]: exit code 3: secret`}, res.Waiting["a"])
		assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, svc.byName("a").state)
		assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, svc.byName("b").state)
		assert.NotContains(t, rec.take(), "secret")
	})
}

func TestCancelledSyncLeavesNoPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService()
		svc.pull = func(ctx context.Context, _ *criv1.PullImageRequest) error {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		s := newSyncer(t, svc.runtime(Options{}), podOf("a"))
		req := s.request()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the pod is to end")
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		_, err := s.rt.SyncPod(ctx, req)
		assert.ErrorIs(t, err, context.Canceled)
		var failed map[string]pullFailure
		s.rt.pods.with("uid-1", func(p *podMemory) { failed = p.pulls })
		assert.Empty(t, failed, "giving up is no failure of the image")
	})
}
