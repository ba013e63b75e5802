package kubeletkit_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// callsOf runs an agent over the fake, with one pod after a minute, and returns the
// calls about the pod in the two minutes that follow, in the order of their
// beginning; calls of the agent that are about no pod are counted in idle.
func callsOf(t *testing.T, during func(rt *fake.Runtime)) (calls []string, idle map[string]int) {
	t.Helper()
	idle = map[string]int{}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir})
		defer rt.Close()
		source := podconfigfake.NewSource("test")
		source.Set()
		host := rt.Host()
		host.NodeName, host.Hostname = "node", "node"
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: filepath.Join(dir, "root"), PodLogsDir: host.PodLogsDir, Host: host,
			Runtime: rt, Sources: []podconfig.Source{source},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1) // one value, of the one goroutine
		go func() { done <- agent.Run(ctx) }()
		time.Sleep(time.Minute)
		rt.ForgetCalls()
		source.Set(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "web"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent}}},
		})
		time.Sleep(30 * time.Second)
		if during != nil {
			rt.ForgetCalls()
			during(rt)
			time.Sleep(30 * time.Second)
		}
		for _, call := range rt.Calls(fake.Target{}) {
			if call.Pod.UID == "" && call.Image == "" {
				idle[call.Method]++
			} else {
				calls = append(calls, call.Method)
			}
		}
		assert.Equal(t, v1.PodRunning, agent.Pods()[0].Status.Phase)
		stop()
		require.NoError(t, <-done)
	})
	return calls, idle
}

// A start and a restart cost the calls that they need, and one look at what came of
// them. That there is nothing yet of a new pod, the last list has told.
func TestCallsOfAStart(t *testing.T) {
	calls, _ := callsOf(t, nil)
	assert.ElementsMatch(t, []string{
		"RunPodSandbox", "PodSandboxStatus", // the address, which containers may ask for
		"ImageStatus", "CreateContainer", "StartContainer",
		"ListPodSandbox", "ListContainers", "ContainerStatus", // what came of it
	}, calls)
	calls, _ = callsOf(t, func(rt *fake.Runtime) { rt.Exit(fake.Target{Pod: "web"}, 1) })
	look := []string{"ListPodSandbox", "ListContainers", "ContainerStatus"}
	want := append(look, "ImageStatus", "CreateContainer", "StartContainer", "ContainerStatus") // of the dead one too
	assert.ElementsMatch(t, append(want, look...), calls)
}
