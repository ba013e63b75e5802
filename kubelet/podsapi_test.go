package kubelet

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A client of the pods API follows a pod from its start to its end. Without the gate, or the capability, there is no
// socket.
func TestPodsAPI(t *testing.T) {
	t.Parallel()
	e := newEmbedder(t)
	socket := filepath.Join(e.root, "pods-api", "pods-api.sock")
	for _, without := range []func() (*Kubelet, func()){
		func() (*Kubelet, func()) { return e.start("--feature-gates=PodsAPI=false") },
		func() (*Kubelet, func()) {
			e.opts.Without = []Capability{PodsAPI}
			defer func() { e.opts.Without = nil }()
			return e.start()
		},
	} {
		k, stop := without()
		e.pods <- []*v1.Pod{podOf("web")}
		e.runs(k, "web")
		assert.NoFileExists(t, socket)
		stop()
	}
	k, stop := e.start()
	defer stop()
	web, job := podOf("web"), podOf("job")
	job.Spec.RestartPolicy = v1.RestartPolicyNever
	e.pods <- []*v1.Pod{web}
	e.runs(k, "web")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	client := podsv1alpha1.NewPodsClient(conn)
	var list *podsv1alpha1.ListPodsResponse
	require.Eventually(t, func() bool { // the pod runs before the sources have delivered
		list, err = client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{}, grpc.WaitForReady(true))
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Len(t, list.GetPods(), 1)
	var listed v1.Pod
	require.NoError(t, listed.Unmarshal(list.GetPods()[0]))
	assert.True(t, equality.Semantic.DeepEqual(k.Agent().Pods()[0], &listed))
	assert.Equal(t, v1.PodRunning, listed.Status.Phase)

	stream, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	require.NoError(t, err)
	next := func() string {
		event, err := stream.Recv()
		require.NoError(t, err)
		var pod v1.Pod
		require.NoError(t, pod.Unmarshal(event.GetPod()))
		return fmt.Sprint(event.GetType(), " ", pod.Name, " ", pod.Status.Phase)
	}
	until := func(last string) {
		t.Helper()
		for event := next(); event != last; event = next() {
			require.Contains(t, event, "MODIFIED ", last)
		}
	}
	assert.Equal(t, "ADDED web Running", next())
	assert.Equal(t, "INITIAL_SYNC_COMPLETE  ", next())
	e.pods <- []*v1.Pod{web, job}
	assert.Equal(t, "ADDED job Pending", next())
	until("MODIFIED job Running")
	assert.Equal(t, 1, e.rt.Exit(fake.Target{UID: "uid-job"}, 0))
	until("MODIFIED job Succeeded")
	until("DELETED job ")
	e.pods <- []*v1.Pod{job}
	until("DELETED web ")
}
