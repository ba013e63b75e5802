package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/volume"
	volumefake "github.com/kubeletkit/kubeletkit/node/volume/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func prioritized(name string, priority int32) *v1.Pod {
	return testpod.With(makePod(name), func(p *v1.Pod) { p.Spec.Priority = &priority })
}

// ends returns when each pod has ended, in seconds after the time.
func (n *node) ends(began time.Time) map[string]int {
	out := map[string]int{}
	for name, pod := range n.after(0) {
		if end := pod.Status.ContainerStatuses[0].State.Terminated; end != nil {
			out[name] = int(end.FinishedAt.Sub(began).Round(time.Second).Seconds())
		}
	}
	return out
}

// Groups end one after the other, the lowest priority first, each not longer than its period.
func TestDrainByPriority(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "batch"}, fake.Behavior{IgnoresStop: true})
		rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 5 * time.Second})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(makePod("batch"), prioritized("web", 1000), prioritized("dns", 2_000_000_000),
			prioritized("csi", 2_000_001_000))
		n.after(5 * time.Second)

		began := time.Now()
		periods := shutdown.ByPriority(shutdown.Period{Priority: 1000, GracePeriod: 20 * time.Second},
			shutdown.Period{GracePeriod: 10 * time.Second},
			shutdown.Period{Priority: 5000, GracePeriod: time.Hour}, shutdown.Period{Priority: 2_000_000_000,
				GracePeriod: 10 * time.Second})
		require.NoError(t, n.DrainByPriority(t.Context(), periods))
		assert.Equal(t, map[string]int{"batch": 10, "web": 15, "dns": 15, "csi": 15}, n.ends(began))
		pods := n.after(0)
		for name, pod := range pods {
			assert.Equal(t, v1.PodFailed, pod.Status.Phase, name)
			assert.Equal(t, "Terminated", pod.Status.Reason, name)
			assert.Equal(t, "Pod was terminated in response to imminent node shutdown.", pod.Status.Message, name)
			c := podspec.ReportedCondition(pod, v1.DisruptionTarget)
			assert.Equal(t, "TerminationByKubelet", c.Reason, name)
		}
		assert.Equal(t, int32(137), pods["batch"].Status.ContainerStatuses[0].State.Terminated.ExitCode,
			"its 30 s became 10 s")

		n.source.Set(makePod("late"))
		assert.Equal(t, "NodeShutdown", n.after(time.Second)["late"].Status.Reason)
	})
}

// With the order alone, each pod has its own grace period.
func TestDrainByPriorityWithoutLimits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 25 * time.Second})
		require.NoError(t, rt.Seed(fake.Pods(1, 1)...)) // an orphan: its source never delivers it
		n := startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(prioritized("web", 7), prioritized("dns", 2_000_000_000))
		n.after(5 * time.Second)
		began := time.Now()
		require.NoError(t, n.DrainByPriority(t.Context(), shutdown.Unlimited()))
		assert.Equal(t, 25, n.ends(began)["dns"])
		assert.Empty(t, rt.Running(fake.Target{}))
	})
}

func TestDrainByPriorityOfWrongPeriods(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, dir, fake.New(fake.Options{}))
		defer n.stop(t)
		_, err := n.EndPods(t.Context(), shutdown.Periods{{Priority: 1}, {GracePeriod: -1}})
		assert.ErrorContains(t, err, "priority 0 follows 1")
	})
}

// The next group waits for the volumes of the one before, as long as its period.
func TestEndPodsWaitsForVolumes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := volumefake.NewPlugin("example.com/disk", func(v *v1.Volume) bool { return v.NFS != nil })
		rt := fake.New(fake.Options{})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Volumes.Plugins = []volume.Plugin{disk} })
		defer n.stop(t)
		web := prioritized("web", 0)
		web.Spec.Volumes = []v1.Volume{{Name: "data",
			VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "a", Path: "/"}}}}
		web.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		n.source.Set(web, prioritized("csi", 2_000_000_000))
		n.after(5 * time.Second)
		release := disk.Hold(volumefake.TearDown, web.UID)
		time.AfterFunc(30*time.Second, release)

		began := time.Now()
		left, err := n.EndPods(t.Context(), shutdown.Classes(time.Minute, 10*time.Second))
		require.NoError(t, err)
		assert.Empty(t, left)
		assert.Equal(t, map[string]int{"web": 0, "csi": 30}, n.ends(began))
	})
}

// When the end is taken back, pods of later groups go on, and new pods start.
func TestEndPodsCanBeTakenBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 10 * time.Second})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(prioritized("web", 0), prioritized("dns", 2_000_000_000))
		n.after(5 * time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(errors.New("shutdown cancelled")) })
		left, err := n.EndPods(ctx, shutdown.Classes(time.Minute, 10*time.Second))
		assert.ErrorContains(t, err, "ending pods by priority: 1 pods that were to end still run: shutdown cancelled")
		require.Len(t, left, 1)
		assert.Equal(t, "web", left[0].Name)
		assert.NoError(t, n.RuntimeReady())

		n.source.Set(prioritized("web", 0), prioritized("dns", 2_000_000_000), makePod("new"))
		pods := n.after(time.Minute)
		assert.Equal(t, v1.PodFailed, pods["web"].Status.Phase)
		assert.Equal(t, v1.PodRunning, pods["dns"].Status.Phase)
		assert.Equal(t, v1.PodRunning, pods["new"].Status.Phase)
	})
}

// What has ended by itself, or ends for another reason, keeps its reason; a pod that takes longer to end than its group
// has ends sooner.
func TestEndPodsThatEndAlready(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "job"}, fake.Exits(time.Second, 0))
		rt.Script(fake.Target{Pod: "clean"}, fake.Behavior{StopsClean: true})
		rt.Script(fake.Target{Pod: "evicted"}, fake.Behavior{StopDelay: time.Hour})
		rt.Script(fake.Target{Pod: "removed"}, fake.Behavior{StopDelay: time.Hour})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		never := testpod.Restart(v1.RestartPolicyNever)
		slow := func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
		pods := []*v1.Pod{testpod.With(makePod("job"), never), testpod.With(makePod("clean"), never),
			testpod.With(makePod("evicted"), slow)}
		n.source.Set(append(slices.Clone(pods), testpod.With(makePod("removed"), slow))...)
		n.after(5 * time.Second)
		require.NoError(t,
			n.Evict("uid-evicted",
				runtime.Eviction{Reason: "Evicted", Message: "The node was low on resource: memory."}))
		n.source.Set(pods...)
		n.after(time.Second)

		// The answer of a stop takes a while, so that pods which end with their period are late.
		rt.Inject(fake.Fault{Call: "StopContainer", Delay: 500 * time.Millisecond, Late: true})
		began := time.Now()
		left, err := n.EndPods(t.Context(), shutdown.Classes(20*time.Second, 0))
		require.NoError(t, err)
		assert.Len(t, left, 2, "they end with their period, and are not waited for any longer")
		assert.InDelta(t, 20, time.Since(began).Seconds(), 1)
		ended := n.after(time.Second)
		assert.Empty(t, rt.Running(fake.Target{}))
		assert.Equal(t, v1.PodSucceeded, ended["job"].Status.Phase)
		assert.Equal(t, v1.PodFailed, ended["clean"].Status.Phase)
		assert.Equal(t, "Terminated", ended["clean"].Status.Reason)
		assert.Equal(t, "Evicted", ended["evicted"].Status.Reason)
	})
}

// changed returns the pod with another environment, which a container has only when it is created.
func changed(pod *v1.Pod) *v1.Pod {
	return testpod.With(pod,
		func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "CHANGED", Value: "yes"}} })
}

// No container of a pod is created after the drain has begun, whatever was requested of it before and meanwhile.
func TestNoPodStartsAfterADrain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "batch"}, fake.Behavior{StopDelay: 5 * time.Minute})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 20 * time.Second})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.RecreateUpdated = true })
		defer n.stop(t)
		slow := func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
		batch, web, dns, left := testpod.With(makePod("batch"), slow), prioritized("web", 1000),
			prioritized("dns", 2000), prioritized("left", 2000)
		former := testpod.With(prioritized("former", 2000), testpod.UID("uid-former"))
		successor := testpod.With(prioritized("former", 2000), testpod.UID("uid-successor"))
		n.source.Set(batch, web, dns, left, former)
		n.after(5 * time.Second)
		n.source.Set(batch, changed(web), dns, left, successor)
		n.after(5 * time.Second)
		require.Len(t, rt.Running(fake.Target{}), 5, "former and web are ending")

		rt.ForgetCalls()
		time.AfterFunc(10*time.Second, func() { n.source.Set(batch, changed(web), changed(dns), successor) })
		time.AfterFunc(time.Minute,
			func() { n.source.Set(batch, changed(web), changed(dns), left, successor, makePod("late")) })
		periods := shutdown.ByPriority(shutdown.Period{GracePeriod: 10 * time.Minute},
			shutdown.Period{Priority: 1000, GracePeriod: time.Minute},
			shutdown.Period{Priority: 2000, GracePeriod: time.Minute})
		require.NoError(t, n.DrainByPriority(t.Context(), periods))
		for _, call := range rt.Calls(fake.Target{}) {
			assert.NotContains(t, []string{"RunPodSandbox", "CreateContainer", "StartContainer"}, call.Method,
				"%s %s", call.Pod, call.Method)
		}
		assert.Empty(t, rt.Running(fake.Target{}))
		pods := n.after(time.Minute)
		assert.Len(t, pods, 6)
		for name, pod := range pods {
			assert.Equal(t, v1.PodFailed, pod.Status.Phase, name)
			want := "Terminated"
			switch name {
			case "late", "left": // added again
				want = "NodeShutdown"
			case "web": // it had ended before the drain reached it
				want = ""
			}
			assert.Equal(t, want, pod.Status.Reason, name)
		}
	})
}
