package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func execHandler(cmd string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{cmd}}}
}

func condition(pod *v1.Pod, t v1.PodConditionType) v1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

// A change of readiness is in the status at once, whatever else is going on in the pod.
func TestReadinessWhileTheWorkerIsBusy(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		var unready, slowHooks atomic.Bool
		rt.Script(fake.Target{},
			fake.Behavior{Exec: func(ctx context.Context, cmd []string) (runtime.ExecResult, error) {
				switch {
				case cmd[0] == "ready?" && unready.Load():
					return runtime.ExecResult{ExitCode: 1}, nil
				case cmd[0] == "hook" && slowHooks.Load():
					select {
					case <-time.After(24 * time.Second):
					case <-ctx.Done():
					}
				}
				return runtime.ExecResult{}, nil
			}})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready?"}}},
			PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1}
		web := testpod.New("web", testpod.Restart(v1.RestartPolicyAlways), testpod.Grace(60), testpod.Container(
			v1.Container{Name: "web", Image: "app:1", ReadinessProbe: probe,
				Lifecycle: &v1.Lifecycle{PreStop: execHandler("hook")}},
			v1.Container{Name: "slow", Image: "app:1", Lifecycle: &v1.Lifecycle{PostStart: execHandler("hook"),
				PreStop: execHandler("hook")}},
		))
		n.source.Set(web)
		ready := func(after time.Duration) []v1.ConditionStatus {
			pod := n.after(after)["web"]
			return []v1.ConditionStatus{condition(pod, v1.PodReady), condition(pod, v1.ContainersReady)}
		}
		require.Equal(t, []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionTrue}, ready(5*time.Second))

		slowHooks.Store(true)
		n.runtime.Exit(fake.Target{Container: "slow"}, 1)
		ready(2 * time.Second) // the postStart hook of its successor is under way
		unready.Store(true)
		pod := n.after(2 * time.Second)["web"]
		assert.False(t, pod.Status.ContainerStatuses[1].Ready)
		require.Equal(t, "web", pod.Status.ContainerStatuses[1].Name)
		unready.Store(false)
		assert.True(t, n.after(2 * time.Second)["web"].Status.ContainerStatuses[1].Ready)
		require.Equal(t, []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionTrue}, ready(time.Minute))

		n.source.Set(testpod.With(web.DeepCopy(), testpod.Deleted(60)))
		require.Equal(t, []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionTrue}, ready(2*time.Second),
			"the preStop hook is under way")
		unready.Store(true)
		assert.Equal(t, []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionFalse}, ready(2*time.Second))
	})
}

// A pod is ready to start containers as soon as it has a sandbox, while its images are
// being pulled.
func TestReadyToStartContainersWhilePulling(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Inject(fake.Fault{Call: "PullImage", Delay: time.Minute})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		onHost := testpod.With(makePod("host"), func(pod *v1.Pod) { pod.Spec.HostNetwork = true })
		n.source.Set(makePod("web"), onHost)
		for name, pod := range n.after(5 * time.Second) {
			assert.Equal(t, v1.ConditionTrue, condition(pod, v1.PodReadyToStartContainers), name)
			assert.Equal(t, v1.PodPending, pod.Status.Phase, name)
			assert.NotEmpty(t, pod.Status.PodIP, name)
		}
		for name, pod := range n.after(2 * time.Minute) {
			assert.Equal(t, v1.PodRunning, pod.Status.Phase, name)
		}
	})
}

// A pod that no source contains any more is shown until it is forgotten.
func TestTerminatingPods(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 10 * time.Second})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(makePod("web"), makePod("db"))
		n.after(5 * time.Second)
		require.Empty(t, n.Terminating())
		n.source.Set(makePod("db"))
		n.after(5 * time.Second)
		require.Len(t, n.Terminating(), 1)
		assert.Equal(t, "web", n.Terminating()[0].Name)
		assert.Equal(t, v1.PodRunning, n.Terminating()[0].Status.Phase)
		n.after(10 * time.Second)
		assert.Empty(t, n.Terminating())
	})
}
