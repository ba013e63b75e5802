package agent_test

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// TestCallsOfRemovals counts the calls that change something when all of many pods are
// removed: one for each container and one for each sandbox, since its removal stops it; and whether
// containers are stopped before sandboxes are removed.
func TestCallsOfRemovals(t *testing.T) {
	for name, options := range map[string][]testpod.Option{"removed": nil,
		"deleted in the API": {testpod.Deleted(30)}} {
		t.Run(name, func(t *testing.T) {
			changes := callsOfRemovals(t, 40, options...)
			assert.LessOrEqual(t, changes["StopPodSandbox"], 8, "until a removal has shown that it stops the sandbox")
			delete(changes, "StopPodSandbox")
			assert.Equal(t, map[string]int{"StopContainer": 40, "RemovePodSandbox": 40}, changes)
		})
	}
}

// callsOfRemovals returns how many calls of each method the runtime gets when the
// source removes all pods, or changes them if options are given.
func callsOfRemovals(t *testing.T, n int, options ...testpod.Option) map[string]int {
	changes := map[string]int{}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir, CRI: cri.Options{MaxParallelEnds: 8}})
		defer rt.Close()
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 100 * time.Millisecond})
		source := podconfigfake.NewSource(podspec.SourceAPI)
		var pods []*v1.Pod
		for i := range n {
			name := string(rune('a'+i/26)) + string(rune('a'+i%26))
			pods = append(pods, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "busybox:1",
					ImagePullPolicy: v1.PullIfNotPresent}}},
			})
		}
		source.Set(pods...)
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
		time.Sleep(time.Minute + time.Second) // garbage collection comes at each minute
		require.Len(t, rt.Running(fake.Target{}), n)
		for _, call := range []string{"StopPodSandbox", "RemovePodSandbox"} {
			rt.Inject(fake.Fault{Call: call, Delay: 100 * time.Millisecond})
		}
		rt.ForgetCalls()
		for i := range pods {
			pods[i] = testpod.With(pods[i], options...)
		}
		if len(options) == 0 {
			pods = nil
		}
		source.Set(pods...)
		time.Sleep(time.Minute)
		require.Empty(t, rt.Instances(fake.Target{}))

		last, ninth := map[string]time.Time{}, map[string]time.Time{}
		for _, call := range rt.Calls(fake.Target{}) {
			if !call.Changes() {
				continue
			}
			changes[call.Method]++
			if changes[call.Method] == 9 { // as many pass at once as there are places
				ninth[call.Method] = call.Began
			}
			last[call.Method] = call.Began
		}
		assert.False(t, last["StopContainer"].After(ninth["RemovePodSandbox"]), "containers before sandboxes")
		stop()
		require.NoError(t, <-done)
	})
	return changes
}

// A pod of an API server that was deleted and has ended leaves nothing in the runtime, although
// its object is kept there, as by a finalizer.
func TestRemovalOfDeletedPods(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir})
		defer rt.Close()
		source := podconfigfake.NewSource(podspec.SourceAPI)
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a",
				Finalizers: []string{"example.com/wait"}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "busybox:1",
				ImagePullPolicy: v1.PullIfNotPresent}}},
		}
		source.Set(pod)
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
		require.Len(t, rt.Running(fake.Target{}), 1)
		deleted, now, grace := pod.DeepCopy(), metav1.Now(), int64(1)
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &now, &grace
		source.Set(deleted)
		time.Sleep(time.Minute)
		assert.Empty(t, rt.Instances(fake.Target{}))
		pods := agent.Pods()
		require.Len(t, pods, 1, "its source has it")
		assert.Equal(t, v1.PodFailed, pods[0].Status.Phase)
		stop()
		require.NoError(t, <-done)
	})
}
