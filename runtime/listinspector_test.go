package runtime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

type listFunc func(ctx context.Context) ([]*runtime.Pod, error)

func (f listFunc) ListPods(ctx context.Context) ([]*runtime.Pod, error) { return f(ctx) }

func TestListInspector(t *testing.T) {
	shop := &runtime.Pod{
		PodRef: runtime.PodRef{UID: "1", Namespace: "default", Name: "shop"},
		Sandboxes: []runtime.Sandbox{{ID: "s2", Attempt: 1, State: runtime.SandboxReady},
			{ID: "s1", State: runtime.SandboxNotReady}},
		Containers: []runtime.Container{{ID: runtime.ContainerID{Type: "x", ID: "c1"}, Name: "web", SandboxID: "s2",
			State: runtime.ContainerRunning, Hash: 7}},
	}
	other := &runtime.Pod{PodRef: runtime.PodRef{UID: "2"}, Sandboxes: []runtime.Sandbox{{ID: "s3"}}}
	list := listFunc(func(ctx context.Context) ([]*runtime.Pod,
		error) {
		return []*runtime.Pod{other, shop}, ctx.Err()
	})

	status, err := runtime.ListInspector(list).InspectPod(t.Context(), runtime.PodRef{UID: "1"})
	require.NoError(t, err)
	assert.Equal(t, &runtime.PodStatus{
		PodRef:     shop.PodRef,
		Sandboxes:  []runtime.SandboxStatus{{Sandbox: shop.Sandboxes[0]}, {Sandbox: shop.Sandboxes[1]}},
		Containers: []runtime.ContainerStatus{{Container: shop.Containers[0]}},
	}, status)

	gone := runtime.PodRef{UID: "3", Namespace: "default", Name: "gone"}
	status, err = runtime.ListInspector(list).InspectPod(t.Context(), gone)
	require.NoError(t, err)
	assert.Equal(t, &runtime.PodStatus{PodRef: gone}, status, "a pod that is not in the list")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = runtime.ListInspector(list).InspectPod(ctx, gone)
	assert.ErrorIs(t, err, context.Canceled)
}
