package statustest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func testUnknown(e *env) {
	_, ok := e.m.Get("a")
	assert.False(e, ok)
	e.m.Forget("a")
	e.m.Prune(func(types.UID) bool { return false })
	_, ok = e.m.Get("a")
	assert.False(e, ok)
	e.settle()
	assert.Empty(e, e.sink.Calls(""))
}

func testKeepsTheLatest(e *env) {
	p := pod("a")
	p.Generation = 3
	e.m.Set(p, phase(v1.PodPending, "1"))
	e.m.Set(p, phase(v1.PodRunning, "2"))
	e.m.Set(pod("b"), phase(v1.PodPending, "3"))
	s := e.get("a")
	assert.Equal(e, v1.PodRunning, s.Phase)
	assert.Equal(e, "2", s.Message)
	assert.Equal(e, int64(3), s.ObservedGeneration)
	assert.Equal(e, "3", e.get("b").Message)
}

func testCopiesStatuses(e *env) {
	s := v1.PodStatus{
		Phase:     v1.PodRunning,
		PodIPs:    []v1.PodIP{{IP: "10.0.0.1"}},
		StartTime: &metav1.Time{},
		ContainerStatuses: []v1.ContainerStatus{{Name: "app",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
	}
	e.m.Set(pod("a"), s)
	s.PodIPs[0].IP = "changed"
	s.ContainerStatuses[0].State.Running = nil
	got := e.get("a")
	assert.Equal(e, "10.0.0.1", got.PodIPs[0].IP)
	assert.NotNil(e, got.ContainerStatuses[0].State.Running)
}

func testPhaseDoesNotGoBack(e *env) {
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Set(pod("a"), phase(v1.PodPending, ""))
	assert.Equal(e, v1.PodRunning, e.get("a").Phase)

	failed := phase(v1.PodFailed, "no memory left")
	failed.Reason = "Evicted"
	e.m.Set(pod("a"), failed)
	for _, p := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
		e.m.Set(pod("a"), phase(p, "other"))
		s := e.get("a")
		assert.Equal(e, v1.PodFailed, s.Phase)
		assert.Equal(e, "Evicted", s.Reason)
		assert.Equal(e, "no memory left", s.Message)
	}
}

func testTerminate(e *env) {
	running := phase(v1.PodRunning, "")
	running.ContainerStatuses = []v1.ContainerStatus{{Name: "app",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	static := pod("static")
	static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	for _, p := range []*v1.Pod{pod("a"), static} {
		e.m.Set(p, running)
		e.m.Terminate(p)
		s := e.get(p.UID)
		assert.Equal(e, v1.PodFailed, s.Phase, p.UID)
		require.Len(e, s.ContainerStatuses, 1)
		assert.NotNil(e, s.ContainerStatuses[0].State.Terminated, p.UID)
	}
	e.m.Set(pod("b"), phase(v1.PodSucceeded, ""))
	e.m.Terminate(pod("b"))
	e.m.Terminate(pod("b"))
	assert.Equal(e, v1.PodSucceeded, e.get("b").Phase)
}

func testPods(e *env) {
	p := pod("a")
	e.m.Set(p, phase(v1.PodPending, "1"))
	e.m.Set(p, phase(v1.PodRunning, "2"))
	e.m.Set(pod("b"), phase(v1.PodPending, "3"))
	e.m.Set(pod("c"), phase(v1.PodPending, ""))
	e.m.Forget("c")
	messages := map[types.UID]string{}
	for _, got := range e.m.Pods() {
		messages[got.UID] = got.Status.Message
		got.Status.Message = "changed"
	}
	assert.Equal(e, map[types.UID]string{"a": "2", "b": "3"}, messages,
		"each pod that has a status, with the latest one")
	assert.Equal(e, "2", e.get("a").Message, "a copy")
	assert.Empty(e, p.Status.Message, "the pod of Set is not changed")
}

// testEndedContainerStaysEnded sets a status in which a container runs again that must not be restarted.
func testEndedContainerStaysEnded(e *env) {
	p := pod("a")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	status := func(state v1.ContainerState) v1.PodStatus {
		s := phase(v1.PodRunning, "")
		s.ContainerStatuses = []v1.ContainerStatus{{Name: "app", State: state}}
		return s
	}
	e.m.Set(p, status(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}))
	for _, again := range []v1.ContainerState{{Running: &v1.ContainerStateRunning{}},
		{Waiting: &v1.ContainerStateWaiting{}}} {
		e.m.Set(p, status(again))
		assert.NotNil(e, e.get("a").ContainerStatuses[0].State.Terminated, "the status is refused")
	}
}

func testForgetAndPrune(e *env) {
	for _, uid := range []types.UID{"a", "b", "c"} {
		e.m.Set(pod(uid), phase(v1.PodRunning, ""))
	}
	e.m.Prune(func(uid types.UID) bool { return uid != "a" })
	_, ok := e.m.Get("a")
	assert.False(e, ok)
	e.get("b")
	e.m.Forget("b")
	_, ok = e.m.Get("b")
	assert.False(e, ok)
	e.get("c")

	// The UID may come again. Then it starts from nothing.
	e.m.Set(pod("a"), phase(v1.PodPending, ""))
	assert.Equal(e, v1.PodPending, e.get("a").Phase)
}

func testRunOnce(e *env) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	defer cancel()
	require.ErrorIs(e, e.m.Run(ctx), runtime.ErrAlreadyRunning)
	e.cancel()
	require.NoError(e, <-e.ran)
	require.ErrorIs(e, e.m.Run(ctx), runtime.ErrAlreadyRunning)
	e.ran <- nil

	// The other methods work after Run.
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	assert.Equal(e, v1.PodRunning, e.get("a").Phase)
}
