package podsapi_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/podsapi"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// rig is a server that runs, with a client.
type rig struct {
	*testing.T
	node   *fake.Node
	server *podsapi.Server
	client podsv1alpha1.PodsClient

	mu       sync.Mutex
	requests []string
}

func newRig(t *testing.T, opts podsapi.Options, pods ...*v1.Pod) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") // short, for the socket
	require.NoError(t, err)
	path := filepath.Join(dir, "pods-api", "pods-api.sock")
	r := &rig{T: t, node: fake.NewNode(pods...)}
	opts.Request = func(version, method, code string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, version+" "+method+" "+code)
	}
	r.server, err = podsapi.New(path, opts)
	require.NoError(t, err)
	require.NoError(t, r.server.Join(r.node))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	r.client = podsv1alpha1.NewPodsClient(conn)
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
		_ = conn.Close()
		_ = os.RemoveAll(dir)
	})
	return r
}

// set replaces the desired pods.
func (r *rig) set(pods ...*v1.Pod) { r.node.SetDesired(true, pods...) }

// list returns the texts of all pods.
func (r *rig) list() (out []string) {
	r.Helper()
	answer, err := r.client.ListPods(r.Context(), &podsv1alpha1.ListPodsRequest{})
	require.NoError(r, err)
	for _, data := range answer.GetPods() {
		out = append(out, text(r.T, data))
	}
	return out
}

// watch begins a watch. next returns the text of its next event.
func (r *rig) watch() (next func() string, stop func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	stream, err := r.client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	require.NoError(r, err)
	return func() string {
		r.Helper()
		event, err := stream.Recv()
		if err != nil {
			return status.Code(err).String()
		}
		if event.Pod == nil {
			return event.GetType().String()
		}
		return event.GetType().String() + " " + text(r.T, event.GetPod())
	}, cancel
}

func text(t *testing.T, data []byte) string {
	t.Helper()
	var pod v1.Pod
	require.NoError(t, pod.Unmarshal(data))
	out := fmt.Sprintf("%s/%s %s %s", pod.Namespace, pod.Name, pod.UID, pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		out += fmt.Sprintf(" %s=%s", c.Type, c.Status)
	}
	return out
}

func pod(name string, uid types.UID, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
	p.Namespace, p.Name, p.UID = "default", name, uid
	return p
}

func TestListAndGet(t *testing.T) {
	r := newRig(t, podsapi.Options{}, pod("web", "b", v1.PodRunning), pod("db", "a", v1.PodPending))
	assert.Equal(t, []string{"default/db a Pending", "default/web b Running"}, r.list(), "by UID, as kubelet")
	answer, err := r.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "b"})
	require.NoError(t, err)
	assert.Equal(t, "default/web b Running", text(t, answer.GetPod()))
	_, err = r.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "c"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	r.node.SetDesired(false)
	_, err = r.client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "sources are missing")
	_, err = r.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "b"})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	next, _ := r.watch()
	assert.Equal(t, "FailedPrecondition", next())
	assert.ErrorIs(t, r.server.Run(t.Context()), runtime.ErrAlreadyRunning)
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, []string{"v1alpha1 ListPods OK", "v1alpha1 GetPod OK", "v1alpha1 GetPod NotFound",
		"v1alpha1 ListPods FailedPrecondition", "v1alpha1 GetPod FailedPrecondition",
		"v1alpha1 WatchPods FailedPrecondition"}, r.requests)
}

// unseen is a node whose agent has generated no status yet.
type unseen struct{ *fake.Node }

func (unseen) PodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// What an API server has of a pod that the agent has not seen yet is no proof that it is ready.
func TestStatusOfTheSource(t *testing.T) {
	ready := pod("web", "b", v1.PodRunning)
	ready.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue},
		{Type: v1.PodReady, Status: v1.ConditionTrue}}
	r := newRig(t, podsapi.Options{})
	require.NoError(t, r.server.Join(unseen{fake.NewNode(ready, pod("db", "c", ""))}))
	assert.Equal(t, []string{"default/web b Running PodScheduled=True Ready=False", "default/db c Pending"}, r.list())
	assert.Equal(t, v1.ConditionTrue, ready.Status.Conditions[1].Status, "the pod is shared")
}

func TestWatch(t *testing.T) {
	web, db := pod("web", "b", v1.PodPending), pod("db", "a", v1.PodRunning)
	r := newRig(t, podsapi.Options{}, web, db)
	next, stop := r.watch()
	for _, want := range []string{"ADDED default/db a Running", "ADDED default/web b Pending",
		"INITIAL_SYNC_COMPLETE"} {
		assert.Equal(t, want, next())
	}
	r.set(db, pod("web", "b", v1.PodRunning))
	r.server.StatusChanged("a") // it has not changed, so that no event is sent
	r.server.StatusChanged("b")
	assert.Equal(t, "MODIFIED default/web b Running", next())
	job := pod("job", "c", v1.PodPending)
	r.node.AddPods(job)
	r.set(db, pod("web", "b", v1.PodRunning), job)
	r.server.StatusChanged("c")
	assert.Equal(t, "ADDED default/job c Pending", next())
	// A pod that has ended is deleted while it is still desired.
	r.node.End(job, nil)
	r.server.StatusChanged("c")
	r.server.StatusChanged("c")
	assert.Equal(t, "DELETED default/job c ", next())
	// One that is not desired is deleted when it has ended.
	r.set(db)
	r.server.StatusChanged("b") // which runs
	r.node.SetGone("b")
	r.server.StatusChanged("b")
	event := next()
	if event == "MODIFIED default/web b Running" { // the status of the source, if the first change was seen alone
		event = next()
	}
	assert.Equal(t, "DELETED default/web b ", event)
	other, stopOther := r.watch()
	assert.Equal(t, "ADDED default/db a Running", other())
	stop()
	assert.Equal(t, "Canceled", next())
	assert.Equal(t, "INITIAL_SYNC_COMPLETE", other())
	stopOther()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.requests) == 2
	}, 10*time.Second, time.Millisecond)
	assert.Equal(t, "v1alpha1 WatchPods Canceled", r.requests[0])
}

// A client that does not read holds up neither the agent nor others, and receives the latest state afterwards.
func TestSlowClient(t *testing.T) {
	big := pod("web", "a", v1.PodPending)
	big.Annotations = map[string]string{"big": string(make([]byte, 100_000))}
	r := newRig(t, podsapi.Options{}, big)
	slow, _ := r.watch()
	assert.Equal(t, "ADDED default/web a Pending", slow())
	for i := range 1000 {
		changed := big.DeepCopy()
		changed.Status.Message = fmt.Sprint(i)
		if i == 999 {
			changed.Status.Phase = v1.PodSucceeded
		}
		r.set(changed)
		r.server.StatusChanged("a")
	}
	events := 1
	for event := slow(); event != "MODIFIED default/web a Succeeded"; event = slow() {
		require.Contains(t, []string{"INITIAL_SYNC_COMPLETE", "MODIFIED default/web a Pending"}, event)
		events++
	}
	assert.Less(t, events, 500)
}

func TestLimit(t *testing.T) {
	r := newRig(t, podsapi.Options{QPS: 1, Burst: 2})
	var refused error
	for range 4 {
		if _, err := r.client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{}); err != nil {
			refused = err
		}
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(refused))
	next, _ := r.watch()
	assert.Equal(t, "INITIAL_SYNC_COMPLETE", next(), "a watch has no limit")
}

func TestProblems(t *testing.T) {
	_, err := podsapi.New("", podsapi.Options{QPS: -1})
	for _, problem := range []string{"path", "positive"} {
		assert.ErrorContains(t, err, problem)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	server, err := podsapi.New(filepath.Join(file, "pods-api"), podsapi.Options{})
	require.NoError(t, err)
	var logged []string
	require.NoError(t, server.Join(&fake.Node{
		Log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}))
	require.NoError(t, server.Run(t.Context()), "the agent does without")
	assert.Len(t, logged, 1)
}
