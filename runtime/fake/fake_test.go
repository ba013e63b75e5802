package fake_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func makePod(name string, containers ...string) *v1.Pod {
	pod := testpod.New(name, testpod.Restart(v1.RestartPolicyAlways), testpod.Grace(30),
		testpod.Containers(containers...))
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = v1.PullIfNotPresent
	}
	return pod
}

// bubble runs a test in virtual time, with a runtime.
func bubble(t *testing.T, test func(t *testing.T, rt *fake.Runtime)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Dir: dir,
			CRI: cri.Options{Backoff: plan.Backoff{Initial: time.Second, Max: time.Second}}})
		defer func() { require.NoError(t, rt.Close()) }()
		test(t, rt)
	})
}

func mustSync(t *testing.T, rt *fake.Runtime, pod *v1.Pod) runtime.SyncResult {
	t.Helper()
	res, err := rt.Sync(t.Context(), pod)
	require.NoError(t, err)
	return res
}

func inspect(t *testing.T, rt *fake.Runtime, pod *v1.Pod) *runtime.PodStatus {
	t.Helper()
	s, err := rt.InspectPod(t.Context(), runtime.RefOf(pod))
	require.NoError(t, err)
	return s
}

func kill(ctx context.Context, rt *fake.Runtime, pod *v1.Pod, grace ...int64) error {
	req := runtime.PodKill{Pod: pod}
	if len(grace) > 0 {
		req.GracePeriod = &grace[0]
	}
	return rt.KillPod(ctx, req)
}

func texts(instances []fake.Instance) []string {
	var out []string
	for i := range instances {
		out = append(out, instances[i].String())
	}
	return out
}

func TestTranscript(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		web, other := makePod("web", "main", "side"), makePod("other", "main")
		mustSync(t, rt, web)
		mustSync(t, rt, other)
		assert.Equal(t, []string{
			"RunPodSandbox default/web",
			"PullImage default/web image:1",
			"CreateContainer default/web/main",
			"StartContainer default/web/main",
			"CreateContainer default/web/side",
			"StartContainer default/web/side",
		}, sorted2(rt.Transcript(fake.Target{Pod: "web"})))
		assert.Equal(t, []string{"CreateContainer default/other/main", "StartContainer default/other/main"},
			rt.Transcript(fake.Target{Pod: "other", Container: "main"}))
		assert.Equal(t, []string{"default/web/main#0 running", "default/web/side#0 running"},
			texts(rt.Running(fake.Target{Pod: "web"})))

		rt.ForgetCalls()
		require.NoError(t, kill(t.Context(), rt, web))
		assert.ElementsMatch(t, []string{
			"StopContainer default/web/main 30s", "StopContainer default/web/side 30s", "StopPodSandbox default/web",
		}, rt.Transcript(fake.Target{}))
		assert.Equal(t, []string{"default/web/main#0 exited (143)", "default/web/side#0 exited (143)"},
			texts(rt.Instances(fake.Target{UID: "uid-web"})))
		assert.Equal(t, 1, rt.ReadySandboxes(fake.Target{}))

		for _, c := range rt.Calls(fake.Target{Pod: "web"}) {
			assert.False(t, c.Ended.IsZero())
			assert.Equal(t, types.UID("uid-web"), c.Pod.UID)
			assert.NotEmpty(t, c.ID+c.Pod.Name)
		}
	})
}

// sorted2 puts the first two calls, which are made side by side, in order.
func sorted2(lines []string) []string {
	if len(lines) > 1 && lines[0] < lines[1] {
		lines[0], lines[1] = lines[1], lines[0]
	}
	return lines
}

func TestCallsAreKeptUpToABound(t *testing.T) {
	rt := fake.New(fake.Options{Calls: 3})
	for range 5 {
		require.NoError(t, rt.Check(t.Context()))
	}
	calls := rt.Calls(fake.Target{})
	require.Len(t, calls, 3)
	for i, seq := range []int{5, 6, 7} { // five times Status, and RuntimeConfig and Version once
		assert.Equal(t, seq, calls[i].Seq)
		assert.False(t, calls[i].Changes())
	}
	rt = fake.New(fake.Options{Calls: -1})
	require.NoError(t, rt.Check(t.Context()))
	assert.Empty(t, rt.Calls(fake.Target{}))
}

func TestScripts(t *testing.T) {
	for name, tc := range map[string]struct {
		script []fake.Behavior
		// after gives the newest instance after each number of seconds, synced every second.
		after map[int]string
	}{
		"runs":                {nil, map[int]string{0: "#0 running", 60: "#0 running"}},
		"ends":                {[]fake.Behavior{fake.Exits(10*time.Second, 3), {}}, map[int]string{9: "#0 running", 10: "#1 running"}},
		"crashes three times": {fake.Times(3, fake.Exits(0, 1)), map[int]string{60: "#3 running"}},
		"starts slowly":       {[]fake.Behavior{{StartDelay: 5 * time.Second}}, map[int]string{0: "#0 running"}},
		"runs out of memory":  {[]fake.Behavior{{RunFor: time.Second, OOM: true}, {}}, map[int]string{5: "#1 running"}},
		"does not start":      {fake.Times(2, fake.Behavior{StartErr: errors.New("no such file")}), map[int]string{60: "#2 running"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, rt *fake.Runtime) {
				rt.Script(fake.Target{Pod: "web", Container: "main"}, tc.script...)
				pod := makePod("web", "main")
				for s := range 61 {
					_, _ = rt.Sync(t.Context(), pod)
					if want, ok := tc.after[s]; ok {
						all := rt.Instances(fake.Target{})
						assert.Equal(t, "default/web/main"+want, all[len(all)-1].String(), "after %d s", s)
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
			})
		})
	}
}

func TestHowInstancesEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		behavior fake.Behavior
		grace    int64
		takes    time.Duration
		code     int32
	}{
		"at once":      {fake.Behavior{}, 30, 0, 143},
		"clean":        {fake.Behavior{StopsClean: true}, 30, 0, 0},
		"after a time": {fake.Behavior{StopDelay: 7 * time.Second}, 30, 7 * time.Second, 143},
		"too slow":     {fake.Behavior{StopDelay: 40 * time.Second}, 30, 30 * time.Second, 137},
		"stubborn":     {fake.Behavior{IgnoresStop: true}, 5, 5 * time.Second, 137},
		"killed":       {fake.Behavior{IgnoresStop: true}, 0, 0, 137},
		"by itself":    {fake.Behavior{IgnoresStop: true, RunFor: 3 * time.Second, ExitCode: 4}, 30, 3 * time.Second, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, rt *fake.Runtime) {
				rt.Script(fake.Target{}, tc.behavior)
				pod := makePod("web", "main")
				mustSync(t, rt, pod)
				began := time.Now()
				require.NoError(t, kill(t.Context(), rt, pod, tc.grace))
				assert.Equal(t, tc.takes, time.Since(began))
				assert.Equal(t, tc.code, inspect(t, rt, pod).Containers[0].ExitCode)
			})
		})
	}
}

func TestUnkillable(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		rt.Script(fake.Target{}, fake.Behavior{Unkillable: true})
		pod := makePod("web", "main")
		mustSync(t, rt, pod)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, kill(ctx, rt, pod, 0), context.DeadlineExceeded)
		assert.Len(t, rt.Running(fake.Target{}), 1)

		go func() { time.Sleep(time.Minute); rt.Exit(fake.Target{}, 9) }()
		require.NoError(t, kill(t.Context(), rt, pod, 0))
		assert.Equal(t, int32(9), inspect(t, rt, pod).Containers[0].ExitCode)
	})
}

func TestSecondStopKillsSooner(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: time.Hour})
		pod := makePod("web", "main")
		mustSync(t, rt, pod)
		began := time.Now()
		go func() { time.Sleep(10 * time.Second); _ = kill(t.Context(), rt, pod, 5) }()
		require.NoError(t, kill(t.Context(), rt, pod, 600))
		assert.Equal(t, 15*time.Second, time.Since(began))
	})
}

func TestOOMAndSandboxDeath(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		pod := makePod("web", "main")
		mustSync(t, rt, pod)
		assert.Equal(t, 1, rt.OOMKill(fake.Target{Container: "main"}))
		assert.Zero(t, rt.OOMKill(fake.Target{Container: "main"}), "it runs no more")
		assert.Equal(t, "OOMKilled", inspect(t, rt, pod).Containers[0].Reason)
		mustSync(t, rt, pod)
		assert.Equal(t, 1, rt.KillSandbox(fake.Target{Pod: "web"}))
		s := inspect(t, rt, pod)
		assert.False(t, s.Running())
		assert.Equal(t, int32(137), s.Containers[0].ExitCode)
		time.Sleep(2 * time.Second)
		mustSync(t, rt, pod)
		assert.Equal(t, uint32(1), inspect(t, rt, pod).ReadySandbox().Attempt)
	})
}

func TestOutput(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		rt.Script(fake.Target{}, fake.Behavior{RunFor: time.Second, ExitCode: 2, Output: "one\ntwo",
			TerminationMessage: "that was all"}, fake.Behavior{})
		pod := makePod("web", "main")
		pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		mustSync(t, rt, pod)
		time.Sleep(2 * time.Second)
		c := inspect(t, rt, pod).Containers[0]
		assert.Equal(t, "that was all", c.Message)
		data, err := os.ReadFile(c.LogPath)
		require.NoError(t, err)
		assert.Regexp(t, `^\S+ stdout F one\n\S+ stdout F two\n$`, string(data))

		mustSync(t, rt, pod)
		clients, _ := rt.Clients()
		c = inspect(t, rt, pod).Containers[0]
		assert.NoFileExists(t, c.LogPath)
		_, err = clients.ReopenContainerLog(t.Context(), &criv1.ReopenContainerLogRequest{ContainerId: c.ID.ID})
		require.NoError(t, err)
		assert.FileExists(t, c.LogPath)
	})
}

func TestUntil(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		pod := makePod("web", "a", "b")
		go func() {
			time.Sleep(10 * time.Minute)
			_, _ = rt.Sync(ctx, pod)
			time.Sleep(10 * time.Minute)
			_ = kill(ctx, rt, pod)
		}()
		began := time.Now()
		running, err := rt.UntilRunning(ctx, fake.Target{Pod: "web"}, 2)
		require.NoError(t, err)
		assert.Equal(t, []string{"default/web/a#0 running", "default/web/b#0 running"}, texts(running))
		assert.Equal(t, 10*time.Minute, time.Since(began))
		require.NoError(t, rt.UntilStopped(ctx, fake.Target{Pod: "web"}))
		assert.Equal(t, 20*time.Minute, time.Since(began))

		_, err = rt.UntilRunning(ctx, fake.Target{Pod: "web"}, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "there is: default/web/a#0 exited (143), default/web/b#0 exited (143)")
		assert.Equal(t, time.Hour, time.Since(began))
	})
}

func TestSyncNeedsADirectory(t *testing.T) {
	_, err := fake.New(fake.Options{}).Sync(t.Context(), makePod("web", "main"))
	require.ErrorContains(t, err, "Options.Dir")
}
