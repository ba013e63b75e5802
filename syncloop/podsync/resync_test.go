package podsync_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

func TestAStatusIsMadeAnewOnlyFromSomethingNew(t *testing.T) {
	w := &world{}
	ips := []string{"192.0.2.1"}
	s := newSyncer(t, w, podsync.Options{HostIPs: func() []string { return ips }})
	pod, seen := makePod(), observed(runtime.ContainerRunning, 0)
	made := func(typ podworkers.UpdateType) int {
		t.Helper()
		w.history, w.calls = nil, nil
		_, err := s.SyncPod(t.Context(), typ, pod, seen)
		require.NoError(t, err)
		assert.Equal(t, []string{"set up volumes", "sync web"}, w.calls, "all else is looked at each time")
		assert.Equal(t, ips, w.host.IPs, "what the runtime gets")
		return len(w.history)
	}
	assert.Equal(t, 1, made(podworkers.Create))
	assert.Equal(t, 0, made(podworkers.Sync), "nothing has changed")

	seen = observed(runtime.ContainerRunning, 0)
	assert.Equal(t, 1, made(podworkers.Sync), "the runtime was asked again")
	assert.Equal(t, 0, made(podworkers.Sync))

	pod = pod.DeepCopy()
	pod.Generation++
	assert.Equal(t, 1, made(podworkers.Change), "the pod has changed")
	assert.Equal(t, pod.Generation, w.last().ObservedGeneration)
	assert.Equal(t, 0, made(podworkers.Sync))

	ips = []string{"192.0.2.2"}
	assert.Equal(t, 1, made(podworkers.Sync), "the host has another address")
	assert.Equal(t, "192.0.2.2", w.last().HostIP)
	assert.Equal(t, 0, made(podworkers.Sync))

	w.sync.Waiting = map[string]v1.ContainerStateWaiting{"main": {Reason: "CrashLoopBackOff"}}
	assert.Equal(t, 1, made(podworkers.Sync), "a container waits")
	assert.Equal(t, 0, made(podworkers.Sync))
	w.sync.Waiting = nil
	assert.Equal(t, 1, made(podworkers.Sync), "and does not any more")

	delete(w.statuses, pod.UID)
	assert.Equal(t, 1, made(podworkers.Sync), "there is no status yet")
	assert.Equal(t, 1, made(podworkers.Create), "another incarnation begins")

	require.NoError(t, s.SyncTerminatedPod(t.Context(), pod, seen))
	assert.Equal(t, 1, made(podworkers.Sync), "all about the pod was forgotten")
}

func TestAPodIsAtRestIfNothingIsExpected(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	pod := makePod()
	atRest := func() bool {
		t.Helper()
		res, err := s.SyncPod(t.Context(), podworkers.Sync, pod, observed(runtime.ContainerRunning, 0))
		require.NoError(t, err)
		return res.AtRest
	}
	assert.True(t, atRest())
	w.sync.Waiting = map[string]v1.ContainerStateWaiting{"main": {Reason: "CrashLoopBackOff"}}
	assert.False(t, atRest(), "a container waits")
	w.sync = runtime.SyncResult{ResizeError: "no"}
	assert.False(t, atRest(), "a resize is not done")
	w.sync = runtime.SyncResult{}
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	assert.True(t, atRest())
	pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	assert.False(t, atRest(), "the claim may be expanded")
}

func TestADirectoryThatIsGoneIsPutBackThoughNothingHasChanged(t *testing.T) {
	s := newSyncer(t, &world{}, podsync.Options{})
	pod, seen := makePod(), observed(runtime.ContainerRunning, 0)
	for range 2 {
		_, err := s.SyncPod(t.Context(), podworkers.Sync, pod, seen)
		require.NoError(t, err)
		assert.DirExists(t, s.PodDir(pod.UID))
		require.NoError(t, os.Remove(s.PodDir(pod.UID)))
	}
}

func TestADeadlineEndsAPodThatHasNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := newSyncer(t, w, podsync.Options{})
		pod, seen := makePod(), observed(runtime.ContainerRunning, 0)
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
		for range 3 {
			res, err := s.SyncPod(t.Context(), podworkers.Sync, pod, seen)
			require.NoError(t, err)
			require.False(t, res.Terminal)
		}
		assert.Len(t, w.history, 1)
		time.Sleep(time.Hour)
		for range 2 {
			res, err := s.SyncPod(t.Context(), podworkers.Sync, pod, seen)
			require.NoError(t, err)
			assert.True(t, res.Terminal)
			assert.Equal(t, "DeadlineExceeded", w.last().Reason)
		}
	})
}

// verdicts are what probes have found.
type verdicts struct {
	prober.Base
	ready bool
}

func (*verdicts) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}
func (v *verdicts) Started(runtime.ContainerID) bool { return true }
func (v *verdicts) Ready(runtime.ContainerID) bool   { return v.ready }

func TestProbeResultsAreReadAtEachSync(t *testing.T) {
	w, probes := &world{statuses: map[types.UID]v1.PodStatus{}}, &verdicts{}
	deps := w.deps()
	deps.Prober = probes
	s, err := podsync.New(deps,
		podsync.Options{PodsDir: t.TempDir(), Host: &runtime.Host{}})
	require.NoError(t, err)
	pod, seen := makePod(), observed(runtime.ContainerRunning, 0)
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	for _, ready := range []bool{false, true, true, false} {
		probes.ready = ready
		_, err := s.SyncPod(t.Context(), podworkers.Sync, pod, seen)
		require.NoError(t, err)
		assert.Equal(t, ready, w.last().ContainerStatuses[0].Ready)
	}
}

func TestRefreshStatus(t *testing.T) {
	w, probes := &world{statuses: map[types.UID]v1.PodStatus{}}, &verdicts{ready: true}
	deps := w.deps()
	deps.Prober = probes
	s, err := podsync.New(deps,
		podsync.Options{PodsDir: t.TempDir(), Host: &runtime.Host{}})
	require.NoError(t, err)
	pod, seen := makePod(), observed(runtime.ContainerRunning, 0)
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	flip := func() {
		t.Helper()
		probes.ready = !probes.ready
		s.RefreshStatus(pod.UID)
		assert.Equal(t, probes.ready, w.last().ContainerStatuses[0].Ready)
	}
	s.RefreshStatus(pod.UID)
	require.Empty(t, w.history, "the pod is not known yet")

	w.during = flip
	_, err = s.SyncPod(t.Context(), podworkers.Create, pod, seen)
	require.NoError(t, err)
	flip()
	w.during = func() {
		flip()
		assert.Equal(t, "why", w.last().Message, "the reason of the end stays")
	}
	w.after = observed(runtime.ContainerExited, 0)
	require.NoError(t, s.SyncTerminatingPod(t.Context(), pod, seen,
		podworkers.Termination{Status: func(s *v1.PodStatus) { s.Message = "why" }}))
	require.NoError(t, s.SyncTerminatedPod(t.Context(), pod, w.after))
	n := len(w.history)
	s.RefreshStatus(pod.UID)
	assert.Len(t, w.history, n, "the final status stays")
}

func TestASandboxIsInTheStatusBeforeContainersStart(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	w.sandbox = &runtime.SandboxStatus{Sandbox: runtime.Sandbox{ID: "s2", State: runtime.SandboxReady},
		IPs: []string{"10.0.0.7"}}
	old := observed(runtime.ContainerExited, 1)
	pod := makePod()
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	for _, before := range []*runtime.PodStatus{nil, nothing(), old} {
		w.during = func() {
			assert.Equal(t, "10.0.0.7", w.last().PodIP)
			for _, c := range w.last().Conditions {
				if c.Type == v1.PodReadyToStartContainers {
					assert.Equal(t, v1.ConditionTrue, c.Status)
				}
			}
		}
		_, err := s.SyncPod(t.Context(), podworkers.Create, pod, before)
		require.NoError(t, err)
	}
	assert.Equal(t, runtime.SandboxReady, old.Sandboxes[0].State, "the observed status is not changed")
}

// A Syncer that remembers nothing of a pod makes its status from scratch. It must come
// to the one that another has left alone.
func TestAStatusMadeAnewFromTheSameIsTheSame(t *testing.T) {
	for _, state := range []runtime.ContainerState{runtime.ContainerCreated, runtime.ContainerRunning,
		runtime.ContainerExited, runtime.ContainerUnknown} {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure} {
			synctest.Test(t, func(t *testing.T) {
				statuses, err := status.New(status.Options{})
				require.NoError(t, err)
				w := &world{}
				syncer := func() *podsync.Syncer {
					s, err := podsync.New(podsync.Deps{Runtime: worldRuntime{world: w}, Cache: worldCache{world: w},
						Status: statuses, Volumes: worldVolumes{world: w}},
						podsync.Options{PodsDir: t.TempDir(), Host: &runtime.Host{IPs: []string{"192.0.2.1"}}})
					require.NoError(t, err)
					return s
				}
				s, pod, seen := syncer(), makePod(), observed(state, 1)
				pod.Spec.RestartPolicy = policy
				for range 3 {
					_, err := s.SyncPod(t.Context(), podworkers.Sync, pod, seen)
					require.NoError(t, err)
					time.Sleep(time.Minute)
				}
				left, ok := statuses.Get(pod.UID)
				require.True(t, ok)
				_, err = syncer().SyncPod(t.Context(), podworkers.Sync, pod, seen)
				require.NoError(t, err)
				fresh, _ := statuses.Get(pod.UID)
				assert.Equal(t, left, fresh, "%v, restartPolicy %v", state, policy)
			})
		}
	}
}

// BenchmarkResync is a look at a pod to which nothing has happened, with the parts of
// an agent.
func BenchmarkResync(b *testing.B) {
	dir := b.TempDir()
	rt := fake.New(fake.Options{Dir: dir, Calls: -1})
	b.Cleanup(func() { _ = rt.Close() })
	pod := fake.Pods(1, 1)[0]
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	require.NoError(b, rt.Seed(pod))
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	seen, err := cache.Newer(b.Context(), runtime.RefOf(pod), 0)
	require.NoError(b, err)
	statuses, err := status.New(status.Options{})
	require.NoError(b, err)
	volumes, err := volume.New(volume.Options{})
	require.NoError(b, err)
	probes, err := prober.New(rt, cache, prober.Options{})
	require.NoError(b, err)
	s, err := podsync.New(podsync.Deps{Runtime: rt, Cache: cache, Status: statuses, Volumes: volumes, Prober: probes},
		podsync.Options{PodsDir: filepath.Join(dir, "pods"), Host: rt.Host()})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := s.SyncPod(b.Context(), podworkers.Sync, pod, seen); err != nil || res.Changed {
			b.Fatalf("changed: %t, error: %v", res.Changed, err)
		}
	}
}

// A callback of an embedder that panics fails its call, and no later one waits for it.
func TestAPanicDuringAStatusEndsItsGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSyncer(t, &world{}, podsync.Options{})
		pod := makePod()
		err := runtime.Recover(func() error {
			return s.SyncTerminatingPod(t.Context(), pod, nothing(),
				podworkers.Termination{Status: func(*v1.PodStatus) { panic("broken") }})
		})
		require.ErrorContains(t, err, "broken")
		require.NoError(t, s.SyncTerminatingPod(t.Context(), pod, nothing(), podworkers.Termination{}))
		require.NoError(t, s.SyncTerminatedPod(t.Context(), pod, nothing()))
	})
}
