package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// callsOf runs an agent over the fake, with one pod after a minute, and returns the
// calls about the pod in the half minute that follows, or if during is given, in the half
// minute after it, in the order of their beginning. Calls of the agent that are about no pod
// are counted in others.
func callsOf(t *testing.T,
	during func(rt *fake.Runtime, source *podconfigfake.Source)) (calls []string, others map[string]int) {
	t.Helper()
	runAgent(t, func(rt *fake.Runtime, source *podconfigfake.Source) {
		rt.ForgetCalls()
		source.Set(onePod("web"))
		time.Sleep(30 * time.Second)
		if during != nil {
			time.Sleep(time.Second) // housekeeping, which may list, comes at each half minute
			rt.ForgetCalls()
			during(rt, source)
			time.Sleep(28 * time.Second)
		}
		calls, others = callsByPod(rt)
	})
	return calls, others
}

// runAgent runs an agent over the fake for the time of the test, which begins after a
// minute of virtual time.
func runAgent(t *testing.T, test func(rt *fake.Runtime, source *podconfigfake.Source)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir})
		defer rt.Close()
		source := podconfigfake.NewSource("test")
		source.Set()
		host := rt.Host()
		host.NodeName, host.Hostname = "node", "node"
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: filepath.Join(dir, "root"), Host: host,
			Runtime: rt, Sources: []podconfig.Source{source},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1) // one value, of the one goroutine
		go func() { done <- agent.Run(ctx) }()
		time.Sleep(time.Minute)
		test(rt, source)
		for _, pod := range agent.Pods() {
			assert.Equal(t, v1.PodRunning, pod.Status.Phase)
		}
		stop()
		require.NoError(t, <-done)
	})
}

func onePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "busybox:1",
			ImagePullPolicy: v1.PullIfNotPresent}}},
	}
}

// callsByPod returns the calls that are about a pod, and counts those that are about none.
func callsByPod(rt *fake.Runtime) (calls []string, others map[string]int) {
	others = map[string]int{}
	for _, call := range rt.Calls(fake.Target{}) {
		if call.Pod.UID == "" && call.Image == "" {
			others[call.Method]++
		} else {
			calls = append(calls, call.Method)
		}
	}
	return calls, others
}

// A start and a restart cost the calls that they need, and one inspection of what came of
// them. That there is nothing yet of a new pod, the last list has shown.
func TestCallsOfAStart(t *testing.T) {
	calls, others := callsOf(t, nil)
	assert.ElementsMatch(t, []string{
		"RunPodSandbox", "PodSandboxStatus", // the address, which containers may ask for
		"ImageStatus", "CreateContainer", "StartContainer",
		"PodSandboxStatus", "ContainerStatus", // what came of it
	}, calls)
	// One list is the relist that follows when the first event establishes the stream. The
	// others are the periodic ones.
	assert.LessOrEqual(t, others["StreamContainers"], 3)

	calls, _ = callsOf(t, func(rt *fake.Runtime, _ *podconfigfake.Source) { rt.Exit(fake.Target{Pod: "web"}, 1) })
	assert.ElementsMatch(t, []string{
		"PodSandboxStatus", "ContainerStatus", // of the dead one
		"ImageStatus", "CreateContainer", "StartContainer",
		"PodSandboxStatus", "ContainerStatus", // of the new one only: the dead one has not changed
	}, calls)
}

// After the stop of a pod one inspection shows how it has ended, which does not change again.
func TestCallsOfAnEnd(t *testing.T) {
	calls, others := callsOf(t, func(_ *fake.Runtime, source *podconfigfake.Source) { source.Set() })
	assert.Equal(t, 1, others["StreamContainers"], "garbage collection, for all pods that end within 250 ms")
	reads := slices.DeleteFunc(calls, func(method string) bool {
		return !strings.HasSuffix(method, "Status") && !strings.HasPrefix(method, "List")
	})
	assert.ElementsMatch(t, []string{
		"PodSandboxStatus", "ContainerStatus", // how it has ended
	}, reads)
}

// An hour in which nothing happens costs lists and checks of the runtime, whose number does not
// depend on the number of pods.
func TestCallsOfIdle(t *testing.T) {
	for _, n := range []int{1, 30} {
		runAgent(t, func(rt *fake.Runtime, source *podconfigfake.Source) {
			var pods []*v1.Pod
			for i := range n {
				pods = append(pods, onePod(fmt.Sprintf("web-%d", i)))
			}
			source.Set(pods...)
			time.Sleep(time.Minute)
			rt.ForgetCalls()
			time.Sleep(time.Hour)
			calls, others := callsByPod(rt)
			assert.Empty(t, calls)
			const images = 12 // collections of images, with one call of each kind
			assert.InDelta(t, 720+images, others["Status"], 1)
			// each 12 by relists and sweeps, and 6 by garbage collection
			assert.LessOrEqual(t, others["StreamPodSandboxes"], 31)
			assert.LessOrEqual(t, others["StreamContainers"], 31+images)
			assert.Equal(t, images, others["ListImages"])
			assert.Equal(t, images, others["ImageFsInfo"])
			for _, known := range []string{"Status", "StreamPodSandboxes", "StreamContainers",
				"ListImages", "ImageFsInfo"} {
				delete(others, known)
			}
			assert.Empty(t, others)
		})
	}
}
