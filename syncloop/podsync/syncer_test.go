package podsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world stands for all that a Syncer works with. calls has what it asked for.
type world struct {
	calls []string

	sync     runtime.SyncResult
	syncErr  error
	killErr  error
	volumes  map[string]runtime.Volume
	setUpErr error
	downErr  error
	setUp    func(ctx context.Context) // called in SetUp
	measure  func(ctx context.Context, pod *v1.Pod) (string, error)
	after    *runtime.PodStatus        // what a read after a kill shows
	later    func() *runtime.PodStatus // in place of after, if it is not nil
	statuses map[types.UID]v1.PodStatus
	history  []v1.PodStatus
	// sandbox is reported by SyncPod; during is called in SyncPod and KillPod.
	sandbox *runtime.SandboxStatus
	during  func()
	host    *runtime.Host // what SyncPod got
	held    bool          // HoldResize of the last SyncPod
}

// The parts that a world stands for.
type (
	worldRuntime struct {
		runtime.Runtime
		*world
	}
	worldCache struct {
		runtime.StatusCache
		*world
	}
	worldStatus struct {
		status.Base
		*world
	}
	worldVolumes struct {
		volume.Base
		*world
	}
)

func (w *world) deps() podsync.Deps {
	return podsync.Deps{Runtime: worldRuntime{world: w}, Cache: worldCache{world: w}, Status: worldStatus{world: w},
		Volumes: worldVolumes{world: w}}
}

func (w *world) note(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w worldRuntime) SyncPod(_ context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	w.note("sync %s", req.Pod.Name)
	w.host, w.held = req.Host, req.HoldResize
	if w.sandbox != nil {
		req.SandboxReady(*w.sandbox)
	}
	if w.during != nil {
		w.during()
	}
	return w.sync, w.syncErr
}

func (w worldRuntime) KillPod(_ context.Context, req runtime.PodKill) error {
	w.note("kill grace=%v spec=%t", ptr.Deref(req.GracePeriod, -1), req.Pod != nil)
	if w.during != nil {
		w.during()
	}
	return w.killErr
}

func (w worldCache) Now() runtime.Mark { return 7 }
func (w worldCache) Newer(_ context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	w.note("read after %d", after)
	if w.later != nil {
		return w.later(), nil
	}
	if w.after == nil {
		return &runtime.PodStatus{PodRef: ref}, nil
	}
	return w.after, nil
}

func (w worldStatus) Get(uid types.UID) (v1.PodStatus, bool) {
	s, ok := w.statuses[uid]
	return s, ok
}
func (w worldStatus) Set(pod *v1.Pod, s v1.PodStatus) {
	w.statuses[pod.UID] = s
	w.history = append(w.history, s)
}
func (w worldStatus) Forget(uid types.UID) { delete(w.statuses, uid) }
func (w worldStatus) Terminate(*v1.Pod)    { w.note("settle status") }

func (w worldVolumes) SetUp(ctx context.Context, _ *v1.Pod, _ string) (map[string]runtime.Volume, error) {
	w.note("set up volumes")
	if w.setUp != nil {
		w.setUp(ctx)
	}
	return w.volumes, w.setUpErr
}
func (w worldVolumes) TearDown(context.Context, runtime.PodRef, string) error {
	w.note("tear down volumes")
	return w.downErr
}
func (w worldVolumes) Remove(context.Context, runtime.PodRef, string) error { return nil }
func (w worldVolumes) Exceeded(ctx context.Context, pod *v1.Pod, _ string) (string, error) {
	if w.measure != nil {
		return w.measure(ctx, pod)
	}
	return "", nil
}

func (w *world) last() v1.PodStatus { return w.history[len(w.history)-1] }

func newSyncer(t *testing.T, w *world, opts podsync.Options) *podsync.Syncer {
	t.Helper()
	w.statuses = map[types.UID]v1.PodStatus{}
	opts.PodsDir, opts.Host = t.TempDir(), &runtime.Host{NodeName: "n", IPs: []string{"192.0.2.1"}}
	s, err := podsync.New(w.deps(), opts)
	require.NoError(t, err)
	return s
}

func makePod() *v1.Pod {
	return testpod.New("web", testpod.Namespace("ns"), testpod.UID("u1"), testpod.Restart(v1.RestartPolicyNever),
		testpod.Containers("main"))
}

func observed(state runtime.ContainerState, code int32) *runtime.PodStatus {
	s := &runtime.PodStatus{PodRef: runtime.RefOf(makePod())}
	s.Sandboxes = []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s", State: runtime.SandboxReady,
		CreatedAt: time.Now().Add(-time.Minute)}}}
	c := runtime.ContainerStatus{ExitCode: code, StartedAt: time.Now().Add(-time.Minute)}
	c.ID, c.Name, c.SandboxID, c.State = runtime.ContainerID{Type: "t", ID: "c"}, "main", "s", state
	s.Containers = []runtime.ContainerStatus{c}
	return s
}

func nothing() *runtime.PodStatus { return &runtime.PodStatus{PodRef: runtime.RefOf(makePod())} }

func TestSyncPreparesThenActs(t *testing.T) {
	w := &world{sync: runtime.SyncResult{Changed: true, RetryAfter: time.Second}}
	s := newSyncer(t, w, podsync.Options{})
	res, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
	require.NoError(t, err)
	assert.Equal(t, podworkers.Result{Changed: true, RetryAfter: time.Second}, res)
	assert.Equal(t, []string{"set up volumes", "sync web"}, w.calls)
	assert.DirExists(t, s.PodDir("u1"))
	assert.Equal(t, v1.PodPending, w.last().Phase)
}

func TestReasonsShowAtOnceAndGoAgain(t *testing.T) {
	w := &world{syncErr: errors.New("no such image"),
		sync: runtime.SyncResult{Waiting: map[string]v1.ContainerStateWaiting{"main": {Reason: "ErrImagePull",
			Message: "no such image"}}}}
	s := newSyncer(t, w, podsync.Options{})
	_, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
	require.ErrorContains(t, err, "no such image")
	assert.Equal(t, "ErrImagePull", w.last().ContainerStatuses[0].State.Waiting.Reason)

	w.syncErr, w.sync = nil, runtime.SyncResult{}
	_, err = s.SyncPod(t.Context(), podworkers.Sync, makePod(), nothing())
	require.NoError(t, err)
	assert.NotEqual(t, "ErrImagePull", w.last().ContainerStatuses[0].State.Waiting.Reason)
}

func TestAPodThatHasFinishedIsTerminal(t *testing.T) {
	for code, phase := range map[int32]v1.PodPhase{0: v1.PodSucceeded, 3: v1.PodFailed} {
		w := &world{}
		res, err := newSyncer(t, w, podsync.Options{}).SyncPod(t.Context(), podworkers.Sync, makePod(),
			observed(runtime.ContainerExited, code))
		require.NoError(t, err)
		assert.True(t, res.Terminal)
		assert.Equal(t, phase, w.last().Phase)
		assert.Empty(t, w.calls, "nothing is done for it")
	}
}

func TestANewIncarnationOfAUIDStartsAfresh(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	w.statuses["u1"] = v1.PodStatus{Phase: v1.PodFailed}
	res, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
	require.NoError(t, err)
	assert.False(t, res.Terminal)
	assert.Equal(t, v1.PodPending, w.last().Phase)
}

func TestActiveDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := newSyncer(t, w, podsync.Options{})
		pod := makePod()
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](30)
		res, err := s.SyncPod(t.Context(), podworkers.Create, pod, nothing())
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, res.RetryAfter, "it is looked at again when the time is up")
		time.Sleep(res.RetryAfter)
		res, err = s.SyncPod(t.Context(), podworkers.Sync, pod, nothing())
		require.NoError(t, err)
		assert.True(t, res.Terminal)
		assert.Equal(t, "DeadlineExceeded", w.last().Reason)
	})
}

func TestWhatIsMissingKeepsThePodPendingWithAReason(t *testing.T) {
	t.Run("volume", func(t *testing.T) {
		w := &world{setUpErr: errors.New(`volume "v": nfs`)}
		_, err := newSyncer(t, w, podsync.Options{}).SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
		require.ErrorContains(t, err, "ns/web(u1)")
		st := w.last()
		assert.Equal(t, v1.PodPending, st.Phase)
		assert.Equal(t, v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: `volume "v": nfs`},
			*st.ContainerStatuses[0].State.Waiting)
		assert.NotContains(t, w.calls, "sync web")
	})
	t.Run("volume, with init containers", func(t *testing.T) {
		w := &world{setUpErr: errors.New(`volume "v": nfs`)}
		var events []runtime.Event
		pod := testpod.With(makePod(), testpod.Init(v1.Container{Name: "first"}))
		_, err := newSyncer(t, w, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e) }}}).SyncPod(
			t.Context(), podworkers.Create, pod, nothing())
		require.Error(t, err)
		assert.Equal(t, "PodInitializing", w.last().InitContainerStatuses[0].State.Waiting.Reason)
		assert.Equal(t, "PodInitializing", w.last().ContainerStatuses[0].State.Waiting.Reason)
		require.Len(t, events, 1)
		assert.Equal(t, "FailedMount", events[0].Reason)
	})
	t.Run("volume of a container that has ended", func(t *testing.T) {
		w := &world{setUpErr: errors.New(`volume "v": nfs`)}
		pod := testpod.With(makePod(), testpod.Restart(v1.RestartPolicyAlways))
		_, err := newSyncer(t, w, podsync.Options{}).SyncPod(t.Context(), podworkers.Create, pod,
			observed(runtime.ContainerExited, 3))
		require.Error(t, err)
		assert.NotNil(t, w.last().ContainerStatuses[0].State.Terminated)
	})
	t.Run("network", func(t *testing.T) {
		w := &world{}
		s := newSyncer(t, w, podsync.Options{NetworkReady: func() error { return runtime.ErrNetworkNotReady }})
		_, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
		require.ErrorIs(t, err, runtime.ErrNetworkNotReady)
		onHost := makePod()
		onHost.Spec.HostNetwork = true
		_, err = s.SyncPod(t.Context(), podworkers.Create, onHost, nothing())
		require.NoError(t, err)
		assert.Contains(t, w.calls, "sync web")
	})
	t.Run("pull secrets", func(t *testing.T) {
		w := &world{}
		s := newSyncer(t, w, podsync.Options{PullSecrets: func(context.Context, *v1.Pod) ([]v1.Secret,
			error) {
			return nil, errors.New("no secret store")
		}})
		_, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
		require.ErrorContains(t, err, "no secret store")
	})
	t.Run("directory", func(t *testing.T) {
		w := &world{}
		s := newSyncer(t, w, podsync.Options{})
		require.NoError(t, os.WriteFile(s.PodDir("u1"), nil, 0o600))
		_, err := s.SyncPod(t.Context(), podworkers.Create, makePod(), nothing())
		require.ErrorContains(t, err, "making its directory")
	})
}

func TestTerminatingEndsOnlyWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{after: observed(runtime.ContainerRunning, 0)}
		s := newSyncer(t, w, podsync.Options{})
		grace := podworkers.Termination{GracePeriod: ptr.To[int64](3)}
		err := s.SyncTerminatingPod(t.Context(), makePod(), observed(runtime.ContainerRunning, 0), grace)
		require.ErrorContains(t, err, "still run")
		assert.Less(t, len(w.calls), 12, "it is read again, but not for long")
		w.calls, w.after = nil, observed(runtime.ContainerExited, 143)
		require.NoError(t, s.SyncTerminatingPod(t.Context(), makePod(), observed(runtime.ContainerRunning, 0), grace))
		assert.Equal(t, []string{"kill grace=3 spec=true", "read after 7"}, w.calls)
		assert.Equal(t, int32(143), w.last().ContainerStatuses[0].State.Terminated.ExitCode)

		w.killErr = errors.New("runtime is away")
		require.ErrorContains(t, s.SyncTerminatingPod(t.Context(), makePod(), nothing(), grace), "runtime is away")
	})
}

// A runtime that reports for a moment that a container runs which has ended is no failure.
func TestAContainerThatEndsAsItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &world{later: func() *runtime.PodStatus {
			if time.Since(began) < 300*time.Millisecond {
				return observed(runtime.ContainerRunning, 0)
			}
			return observed(runtime.ContainerExited, 1)
		}}
		s := newSyncer(t, w, podsync.Options{})
		require.NoError(t, s.SyncTerminatingPod(t.Context(), makePod(), observed(runtime.ContainerRunning, 0),
			podworkers.Termination{}))
		assert.Equal(t, int32(1), w.last().ContainerStatuses[0].State.Terminated.ExitCode)
	})
}

func TestTerminatedTakesDownAndSettles(t *testing.T) {
	w := &world{}
	require.NoError(t, newSyncer(t, w, podsync.Options{}).SyncTerminatedPod(t.Context(), makePod(),
		observed(runtime.ContainerExited, 0)))
	assert.Equal(t, []string{"tear down volumes", "settle status"}, w.calls)
}

func TestOrphansEndWithWhatWasRecorded(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	orphan := &runtime.Pod{PodRef: runtime.PodRef{UID: "o", Name: "orphan"}}
	require.NoError(t, s.SyncTerminatingOrphan(t.Context(), orphan, nothing(), nil))
	assert.Equal(t, []string{"kill grace=-1 spec=false"}, w.calls[:1])
}

func TestNewNamesAllThatIsMissing(t *testing.T) {
	_, err := podsync.New(podsync.Deps{}, podsync.Options{PodsDir: "relative"})
	for _, name := range []string{"Runtime", "Cache", "Status", "Volumes", "PodsDir", "Host"} {
		require.ErrorContains(t, err, name)
	}
}

func ExampleNew() {
	w := &world{statuses: map[types.UID]v1.PodStatus{}, sync: runtime.SyncResult{Changed: true}}
	dir, _ := os.MkdirTemp("", "pods")
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := podsync.New(
		w.deps(),
		podsync.Options{PodsDir: dir, Host: &runtime.Host{NodeName: "edge-7"}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := s.SyncPod(context.Background(), podworkers.Create, makePod(), nothing())
	fmt.Println(res.Changed, err, w.last().Phase)
	// Output: true <nil> Pending
}
