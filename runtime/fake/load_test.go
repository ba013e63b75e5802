package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// TestSeededPodsAreAdopted compares what is seeded with what an agent's own client
// makes, and has the client find nothing to do.
func TestSeededPodsAreAdopted(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := makePod("web", "main", "side")
	pod.Labels, pod.Annotations = map[string]string{"app": "web"}, map[string]string{"note": "x"}
	pod.Spec.Containers[0].Command = []string{"serve"}
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageReadFile
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "image:1"},
		{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		made, seeded := fake.New(fake.Options{Dir: dir}), fake.New(fake.Options{Dir: dir})
		made.Script(fake.Target{Container: "init"}, fake.Exits(time.Second, 0))
		for range 3 {
			mustSync(t, made, pod)
			time.Sleep(5 * time.Second)
		}
		require.Len(t, made.Running(fake.Target{}), 3)
		require.NoError(t, seeded.Seed(pod))
		require.ErrorContains(t, seeded.Seed(makePod("other", "a"), pod),
			"pod default/web(uid-web): it has a sandbox already")
		require.Len(t, seeded.Running(fake.Target{}), 3)

		want, got := inspect(t, made, pod), inspect(t, seeded, pod)
		assert.Equal(t, want.PodRef, got.PodRef)
		assert.Len(t, got.Containers, 3)
		for _, name := range []string{"main", "side", "proxy"} {
			w, g := *want.Newest(name), *got.Newest(name)
			for _, c := range []*runtime.ContainerStatus{&w, &g} {
				c.ID, c.SandboxID, c.CreatedAt, c.StartedAt = runtime.ContainerID{}, "", time.Time{}, time.Time{}
				c.Mounts, c.Resources = nil, nil // those of the files that the client has put down
			}
			assert.Equal(t, w, g)
		}
		seeded.ForgetCalls()
		assert.False(t, mustSync(t, seeded, pod).Changed)
		assert.Empty(t, seeded.Transcript(fake.Target{}))
	})
}

func TestManyPodsOverTheWire(t *testing.T) {
	f := fake.New(fake.Options{})
	pods := fake.Pods(1000, 1)
	require.NoError(t, f.Seed(pods...))
	conn := serve(t, f)
	rt := cri.New(criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn), cri.Options{})
	for range 2 { // the second time from what was kept of the first
		list, err := rt.ListPods(t.Context())
		require.NoError(t, err)
		require.Len(t, list, len(pods))
	}
	s, err := rt.InspectPod(t.Context(), runtime.RefOf(pods[77]))
	require.NoError(t, err)
	require.Len(t, s.Containers, 1)
	f.RestartNext(78, 1)
	after, err := rt.InspectPod(t.Context(), runtime.RefOf(pods[77]))
	require.NoError(t, err)
	require.Len(t, after.Containers, 2)
	list, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, len(pods))
	for _, pod := range list {
		assert.True(t, pod.Running(), pod.Name)
	}
}

func TestManyPodsChangeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		pods := fake.Pods(5, 2)
		assert.Equal(t, pods, fake.Pods(5, 2), "always the same")
		rt.Script(fake.Target{Pod: "pod-3"}, fake.Behavior{}, fake.Exits(time.Second, 7))
		require.NoError(t, rt.Seed(pods...))
		names := func(refs []runtime.PodRef) (out []string) {
			for _, ref := range refs {
				out = append(out, ref.Name)
			}
			return out
		}
		assert.Equal(t, []string{"pod-0", "pod-1"}, names(rt.ExitNext(2, 3)))
		assert.Equal(t, []string{"pod-2", "pod-3"}, names(rt.RestartNext(2, 4)))
		assert.Equal(t, []string{
			"default/pod-3/c0#0 exited (4)", "default/pod-3/c1#0 exited (4)", "default/pod-3/c0#1 running",
			"default/pod-3/c1#1 running",
		}, texts(rt.Instances(fake.Target{Pod: "pod-3"})))
		assert.Equal(t, []string{"pod-4", "pod-2"}, names(rt.RestartNext(2, 5)), "round again, and only what runs")
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"pod-4", "pod-2"}, names(rt.RestartNext(10, 6)), "pod-3 did as its script says")
		assert.Equal(t, []string{
			"default/pod-2/c0#2 exited (6)", "default/pod-2/c1#2 exited (6)", "default/pod-2/c0#3 running",
			"default/pod-2/c1#3 running",
		}, texts(rt.Instances(fake.Target{Pod: "pod-2"})), "of each container one dead instance is left")
		assert.Equal(t, int32(3), inspect(t, rt, pods[2]).Newest("c0").RestartCount)
		assert.Empty(t, rt.Transcript(fake.Target{}), "there were no calls")
	})
}
