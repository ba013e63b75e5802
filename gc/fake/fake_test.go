package fake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/gc/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = runtime.PodRef{UID: "1", Namespace: "default", Name: "web"}

func container(id string, state runtime.ContainerState) runtime.Container {
	return runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: id}, Name: "main", SandboxID: "s1", State: state}
}

// crashed is a pod that runs for the third time.
func crashed() *runtime.Pod {
	return &runtime.Pod{
		PodRef: web,
		Sandboxes: []runtime.Sandbox{{ID: "s1", State: runtime.SandboxReady},
			{ID: "s0", State: runtime.SandboxNotReady}},
		Containers: []runtime.Container{
			container("c2", runtime.ContainerRunning), container("c1", runtime.ContainerExited),
			container("c0", runtime.ContainerExited),
		},
	}
}

func TestWithTheCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.NewRuntime(crashed())
		gone := map[types.UID]bool{}
		c, err := gc.New(rt, func(uid types.UID) bool { return gone[uid] }, gc.Options{})
		require.NoError(t, err)
		busy := errors.New("device busy")
		rt.Fail(fake.RemoveContainer, "1", 1, busy)
		require.ErrorIs(t, c.Collect(t.Context()), busy)
		require.NoError(t, c.Collect(t.Context()))
		assert.Equal(t, []string{
			"ListPods", "RemoveContainer default/web c0", "RemoveSandbox default/web s0", "ListPods",
			"RemoveContainer default/web c0",
		}, rt.Transcript(""))
		pods := rt.Pods()
		require.Len(t, pods, 1)
		assert.Len(t, pods[0].Containers, 2)

		gone["1"] = true
		dead := pods[0]
		dead.Containers[0].State, dead.Sandboxes[0].State = runtime.ContainerExited, runtime.SandboxNotReady
		rt.Set(dead)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		began := time.Now()
		require.NoError(t, rt.Until(ctx, func() bool { return len(rt.Pods()) == 0 }))
		assert.Equal(t, time.Minute, time.Since(began))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestTheContract(t *testing.T) {
	rt := fake.NewRuntime(crashed())
	require.ErrorContains(t, rt.RemoveContainer(t.Context(), runtime.ContainerID{Type: "fake", ID: "c2"}), "runs")
	require.NoError(t, rt.RemoveContainer(t.Context(), runtime.ContainerID{Type: "fake", ID: "nobody"}))
	require.NoError(t, rt.RemoveSandbox(t.Context(), "nobody"))
	pods, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, crashed().Sandboxes, pods[0].Sandboxes)
	assert.Equal(t, crashed().Containers, pods[0].Containers, "exited instances are listed, too")
	pods[0].Containers[0].Name = "changed" // is not shared
	assert.Equal(t, crashed(), rt.Pods()[0])
	require.NoError(t, rt.RemoveSandbox(t.Context(), "s1"))
	assert.Empty(t, rt.Pods()[0].Containers)
	require.NoError(t, rt.RemoveSandbox(t.Context(), "s0"))
	assert.Empty(t, rt.Pods())
}

func TestCollector(t *testing.T) {
	var c fake.Collector
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	c.Kick()
	_, err := c.UntilCalled(ctx, fake.Kick, "")
	require.NoError(t, err)
	_, err = c.UntilCalled(ctx, fake.Run, "")
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-done)
	require.ErrorIs(t, c.Run(ctx), runtime.ErrAlreadyRunning)
}

func Example() {
	rt := fake.NewRuntime(&runtime.Pod{PodRef: web, Containers: []runtime.Container{
		container("new", runtime.ContainerExited), container("old", runtime.ContainerExited),
	}})
	collector, err := gc.New(rt, func(types.UID) bool { return false }, gc.Options{})
	fmt.Println(err)
	fmt.Println(collector.Collect(context.Background()))
	fmt.Println(rt.Transcript(web.UID))
	fmt.Println(rt.Pods()[0].Containers[0].ID)
	// Output:
	// <nil>
	// <nil>
	// [RemoveContainer default/web old]
	// fake://new
}
