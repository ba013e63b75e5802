package cri_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestColdStartMakesTheFewestCalls(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
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
	svc := newService(t, "app:1")
	pod := podOf("a")
	pod.Spec.HostNetwork = true
	newSyncer(t, svc.client(cri.Options{}), pod).mustSync()
	assert.NotContains(t, svc.calls(true), "PodSandboxStatus s1")
}

// By CRI, a runtime that does not handle the network has no status of it.
func TestASandboxWithoutNetworkStatusIsUsed(t *testing.T) {
	for name, network := range map[string]*criv1.PodSandboxNetworkStatus{
		"none": nil, "not an address": {Ip: "10.0.0.1", AdditionalIps: []*criv1.PodIP{{Ip: "what"}}},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t, "app:1")
			rs, is := svc.Clients()
			s := newSyncer(t, cri.New(otherNetwork{rs, network}, is, cri.Options{}), podOf("a"))
			s.mustSync()
			svc.calls()
			res := s.mustSync()
			assert.False(t, res.Changed)
			assert.Empty(t, svc.calls())
		})
	}
}

// otherNetwork replaces the network in the statuses of sandboxes.
type otherNetwork struct {
	criv1.RuntimeServiceClient
	network *criv1.PodSandboxNetworkStatus
}

func (c otherNetwork) PodSandboxStatus(ctx context.Context, req *criv1.PodSandboxStatusRequest,
	opts ...grpc.CallOption) (*criv1.PodSandboxStatusResponse, error) {
	resp, err := c.RuntimeServiceClient.PodSandboxStatus(ctx, req, opts...)
	if s := resp.GetStatus(); s != nil {
		s.Network = c.network
	}
	return resp, err
}

func TestRepliesWithoutAnIDAreErrors(t *testing.T) {
	for method, reason := range map[string]string{"RunPodSandbox": "ContainerCreating",
		"CreateContainer": "CreateContainerError"} {
		t.Run(method, func(t *testing.T) {
			svc := newService(t, "app:1")
			rs, is := svc.Clients()
			s := newSyncer(t, cri.New(noID{rs, method}, is, cri.Options{}), podOf("a"))
			s.pod.Spec.HostNetwork = true // the status of the sandbox is not read
			res, err := s.sync()
			assert.ErrorContains(t, err, method+": the runtime returned no ID")
			assert.Equal(t, reason, res.Waiting["a"].Reason)
			assert.NotContains(t, svc.calls(), "StartContainer")
			if method == "RunPodSandbox" {
				assert.Zero(t, svc.Instances(fake.Target{}))
			}
		})
	}
}

// noID removes the ID from the replies of one method.
type noID struct {
	criv1.RuntimeServiceClient
	method string
}

func (c noID) RunPodSandbox(ctx context.Context, req *criv1.RunPodSandboxRequest,
	opts ...grpc.CallOption) (*criv1.RunPodSandboxResponse, error) {
	resp, err := c.RuntimeServiceClient.RunPodSandbox(ctx, req, opts...)
	if c.method == "RunPodSandbox" {
		resp.PodSandboxId = ""
	}
	return resp, err
}

func (c noID) CreateContainer(ctx context.Context, req *criv1.CreateContainerRequest,
	opts ...grpc.CallOption) (*criv1.CreateContainerResponse, error) {
	resp, err := c.RuntimeServiceClient.CreateContainer(ctx, req, opts...)
	if c.method == "CreateContainer" {
		resp.ContainerId = ""
	}
	return resp, err
}

func TestASandboxIsReportedBeforeImagesArePulled(t *testing.T) {
	for _, host := range []bool{false, true} {
		svc := newService(t, "app:1")
		svc.Inject(fake.Fault{Call: "ImageStatus", Err: errors.New("no images")})
		pod := podOf("a")
		pod.Spec.HostNetwork = host
		s := newSyncer(t, svc.client(cri.Options{}), pod)
		var got []runtime.SandboxStatus
		s.more = func(req *runtime.PodSync) {
			req.SandboxReady = func(sandbox runtime.SandboxStatus) { got = append(got, sandbox) }
		}
		for range 2 {
			_, err := s.sync()
			require.Error(t, err)
		}
		require.Len(t, got, 1, "once, when it is made")
		assert.Equal(t, "s1", got[0].ID)
		assert.Equal(t, runtime.SandboxReady, got[0].State)
		assert.Equal(t, host, got[0].HostNetwork)
		assert.Equal(t, host, len(got[0].IPs) == 0)
	}
}

func TestStartsInSpecOrderAndSharesImages(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("b", "a")
	pod.Spec.InitContainers = []v1.Container{containerNamed("init")}
	s := newSyncer(t, svc.client(cri.Options{}), pod)

	s.mustSync()
	assert.Equal(t, []string{"RunPodSandbox web/0", "CreateContainer init/0", "StartContainer init"}, svc.calls())
	assert.Equal(t, []string{
		"spec.initContainers{init} Created: Container created",
		"spec.initContainers{init} Started: Container started",
	}, s.eventLines())
	svc.exit("init", 0)
	s.mustSync()
	all := svc.calls(true)
	assert.Equal(t, []string{"CreateContainer b/0", "StartContainer b", "CreateContainer a/0", "StartContainer a"},
		all[len(all)-4:])
	n := 0
	for _, c := range all {
		if c == "ImageStatus app:1" {
			n++
		}
	}
	assert.Equal(t, 1, n, "an image is looked for once in a sync")
}

func TestOneBadContainerLeavesTheOthers(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("missing", "config", "create", "start", "good")
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "other:1", v1.PullNever
	pod.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "nowhere", MountPath: "/x"}}
	svc.Inject(fake.Fault{Call: "CreateContainer", Target: fake.Target{Container: "create"},
		Err: errors.New("no space left")})
	svc.Inject(fake.Fault{Call: "StartContainer", Target: fake.Target{Container: "start"},
		Err: errors.New("exec format error")})
	s := newSyncer(t, svc.client(cri.Options{}), pod)
	res, err := s.sync()
	require.Error(t, err)
	assert.ErrorContains(t, err, "pod default/web(uid-1), container create: CreateContainerError: CreateContainer: "+
		"no space left")
	reasons := map[string]string{}
	for name, w := range res.Waiting {
		reasons[name] = w.Reason
	}
	assert.Equal(t, map[string]string{
		"missing": "ErrImageNeverPull", "config": "CreateContainerConfigError",
		"create": "CreateContainerError", "start": "RunContainerError",
	}, reasons)
	assert.Equal(t, "exec format error", res.Waiting["start"].Message)
	assert.Equal(t, runtime.ContainerRunning, svc.newest("good").State)
	logs, err := filepath.Glob(filepath.Join(s.dir, "pod", "containers", "create", "*"))
	require.NoError(t, err)
	assert.Empty(t, logs, "no termination log stays behind")
}

func TestSandboxFailure(t *testing.T) {
	svc := newService(t, "app:1")
	svc.Inject(fake.Fault{Call: "RunPodSandbox", Err: errors.New("no CNI configuration")})
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	res, err := s.sync()
	assert.ErrorContains(t, err, "CreatePodSandboxError: pod default/web(uid-1): RunPodSandbox: no CNI configuration")
	assert.True(t, res.Changed)
	assert.Contains(t, s.eventLines(), "FailedCreatePodSandBox: Failed to create pod sandbox: no CNI configuration")
	assert.Nil(t, svc.newest("a"))
	assert.Equal(t, map[string]v1.ContainerStateWaiting{
		"a": {Reason: "ContainerCreating", Message: "Failed to create pod sandbox: no CNI configuration"},
	}, res.Waiting)
	s.pod.Spec.InitContainers = []v1.Container{containerNamed("init")}
	res, err = s.sync()
	require.Error(t, err)
	assert.Equal(t, "PodInitializing", res.Waiting["a"].Reason)
	assert.Equal(t, "PodInitializing", res.Waiting["init"].Reason)
}

// containerd and CRI-O name the sandbox that they failed to create. If its ID were in the status of the
// pod, each attempt would change the status.
func TestTheStatusHasNoIDOfAFailedSandbox(t *testing.T) {
	const digest = "sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	for attempt := range 3 {
		id := strings.Repeat(strconv.Itoa(attempt), 64)
		svc.Inject(fake.Fault{Call: "RunPodSandbox", Times: 1, Err: fmt.Errorf("failed to setup network for sandbox "+
			"%q: (%s) no address for pause@%s", id, id, digest)})
		res, err := s.sync()
		require.ErrorContains(t, err, id, "the log has the ID")
		assert.Equal(t,
			`Failed to create pod sandbox: failed to setup network for sandbox "<id>": (<id>) no address for pause@`+
				digest, res.Waiting["a"].Message)
	}
}

// A pod that is removed while it starts has not failed.
func TestWhatIsCancelledIsNoFailure(t *testing.T) {
	for _, at := range []string{"RunPodSandbox", "ImageStatus", "CreateContainer", "StartContainer"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService(t, "app:1")
				svc.Inject(fake.Fault{Call: at, Hang: true})
				s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
				req := s.request()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err := s.rt.SyncPod(ctx, req)
				require.ErrorIs(t, err, context.Canceled)
				_, err = svc.UntilCalled(t.Context(), at, fake.Target{})
				require.NoError(t, err, "the call was made")
				for _, e := range s.eventLines() {
					assert.NotContains(t, e, "ailed")
				}
			})
		})
	}
}

// The owner of a pod does not learn how the host looks; who reads the log does.
func TestCauseOfASubPathErrorIsLogged(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("a")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "s"}}
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	s := newSyncer(t, svc.client(cri.Options{Observer: runtime.Observer{Logger: log}}), pod)
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
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	s.mustSync()
	require.Equal(t, 1, svc.KillSandbox(fake.Target{}))
	svc.calls()
	s.mustSync()
	assert.Equal(t, []string{"StopPodSandbox s1", "RunPodSandbox web/1", "CreateContainer a/1", "StartContainer a"},
		svc.calls())
	st := s.status()
	require.Len(t, st.Sandboxes, 2)
	assert.Equal(t, uint32(1), st.Sandboxes[0].Attempt)
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
		s.mustSync()
		svc.exit("a", 1)
		s.mustSync() // the first restart is at once
		svc.exit("a", 1)
		before := len(s.eventLines())
		res := s.mustSync()
		assert.Equal(t, 10*time.Second, res.RetryAfter)
		assert.Equal(t, "CrashLoopBackOff", res.Waiting["a"].Reason)
		assert.False(t, res.Changed)
		assert.Equal(t, []string{"spec.containers{a} BackOff: Back-off restarting failed container a in pod " +
			"web_default(uid-1)"}, s.eventLines()[before:])

		time.Sleep(res.RetryAfter)
		res = s.mustSync()
		assert.True(t, res.Changed)
		assert.Empty(t, res.Waiting)
		svc.exit("a", 1)
		assert.Equal(t, 20*time.Second, s.mustSync().RetryAfter)

		// A pod that was killed is forgotten: what comes with its UID starts anew.
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()}))
		assert.Zero(t, s.rt.Remembered())
	})
}

func TestRestartCountSurvivesTheRuntimesState(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	dir := filepath.Join(s.dir, "logs", "default_web_uid-1", "a")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "4.log"), nil, 0o600))
	s.mustSync()
	assert.Equal(t, int32(5), s.status().Newest("a").RestartCount)
}

func TestPostStart(t *testing.T) {
	pod := podOf("a", "b")
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}

	t.Run("the next container waits for it", func(t *testing.T) {
		svc := newService(t, "app:1")
		newSyncer(t, svc.client(cri.Options{}), pod).mustSync()
		assert.Equal(t, []string{"RunPodSandbox web/0", "CreateContainer a/0", "StartContainer a", "ExecSync hook",
			"CreateContainer b/0", "StartContainer b"}, svc.calls())
	})
	t.Run("its failure kills the container", func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.answer(runtime.ExecResult{ExitCode: 3, Output: []byte("secret\n")})
		s := newSyncer(t, svc.client(cri.Options{}), pod)
		res, err := s.sync()
		require.Error(t, err)
		assert.Equal(t, v1.ContainerStateWaiting{Reason: "PostStartHookError",
			Message: `Exec lifecycle hook ([hook]) for Container "a" in Pod "web_default(uid-1)" failed - error: command 'hook' exited with 3: , message: "secret\n"`}, res.Waiting["a"])
		assert.Equal(t, runtime.ContainerExited, svc.newest("a").State)
		assert.Equal(t, runtime.ContainerRunning, svc.newest("b").State)
		assert.NotContains(t, s.eventLines(), "secret")
	})
}

func TestCancelledSyncLeavesNoPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		again := svc.Inject(fake.Fault{Call: "PullImage", Hang: true})
		s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
		req := s.request()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the pod is to end")
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		_, err := s.rt.SyncPod(ctx, req)
		assert.ErrorIs(t, err, context.Canceled)
		again()
		assert.Empty(t, s.mustSync().Waiting, "giving up is no failure of the image, which is pulled at once")
	})
}
