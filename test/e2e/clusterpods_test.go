package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/podconfig"
	kit "github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// writes counts the requests of a client that are no reads.
type writes struct {
	http.RoundTripper
	n *atomic.Int64
}

func (w writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || r.URL.Query().Get("watch") == "" {
		w.n.Add(1)
	}
	return w.RoundTripper.RoundTrip(r)
}

// stale returns a pod in an earlier state.
type stale struct{ pod *v1.Pod }

func (s stale) ByUID(types.UID) (*v1.Pod, bool)    { return s.pod, true }
func (s stale) ByName(_, _ string) (*v1.Pod, bool) { return s.pod, true }
func (s stale) Synced() bool                       { return true }

// generated is the status of a pod whose container runs, or has ended.
func generated(pod *v1.Pod, over bool) v1.PodStatus {
	now := pod.CreationTimestamp.Add(time.Second) // the same in each call
	c := kit.ContainerStatus{Image: "image:1", ImageRef: "image@sha256:1", StartedAt: now.Add(-time.Second)}
	c.ID, c.Name, c.SandboxID = kit.ContainerID{Type: "containerd", ID: "c1"}, "main", "s1"
	c.State, c.CreatedAt = kit.ContainerRunning, now.Add(-time.Second)
	sandbox := kit.SandboxStatus{IPs: []string{"10.0.0.9"}}
	sandbox.ID, sandbox.State, sandbox.CreatedAt = "s1", kit.SandboxReady, now.Add(-time.Second)
	if over {
		c.State, c.FinishedAt, c.Reason = kit.ContainerExited, now, "Completed"
	}
	return status.Generate(status.Input{
		Pod: pod, HostIPs: []string{"192.0.2.1"}, Now: now, Terminated: over,
		Runtime: &kit.PodStatus{
			IPs:        []string{"10.0.0.9"},
			Sandboxes:  []kit.SandboxStatus{sandbox},
			Containers: []kit.ContainerStatus{c},
		},
	})
}

// TestPodsOfACluster has a real API server receive statuses, deletions and mirror pods.
func TestPodsOfACluster(t *testing.T) {
	t.Parallel()
	server := harness.NewAPIServer(t)
	admin, err := kubernetes.NewForConfig(server.REST())
	require.NoError(t, err)
	ctx := t.Context()
	_, err = admin.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().ServiceAccounts("shop").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	nodeObject, err := admin.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	pods := admin.CoreV1().Pods("shop")

	var n atomic.Int64
	config := server.REST()
	config.QPS = -1
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return writes{rt, &n} })
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	var sink *podstatus.Sink
	src, err := podsource.New(client, "node", podsource.Options{Observers: []func(podsource.Change){
		func(c podsource.Change) { sink.PodsChanged(c) },
	}})
	require.NoError(t, err)
	opts := podstatus.Options{
		NodeName: "node", NodeUID: func() types.UID { return nodeObject.UID },
		Ended: func(types.UID) bool { return true },
	}
	sink, err = podstatus.New(client, src, opts)
	require.NoError(t, err)
	recorded := &results{Sink: sink, errs: map[types.UID][]error{}}
	store, err := status.New(status.Options{Sink: recorded, MayRun: func(types.UID) bool { return false }})
	require.NoError(t, err)
	running(t, store.Run, func(ctx context.Context) error { return src.Run(ctx, podconfig.SinkBase{}) })
	deliver := func(pod *v1.Pod, s v1.PodStatus) (err error) {
		t.Helper()
		before := len(recorded.of(pod.UID))
		store.Set(pod, s)
		harness.Eventually(t, within, "a delivery", func() error {
			errs := recorded.of(pod.UID)
			if len(errs) == before {
				return errors.New("not yet")
			}
			err = errs[before]
			return nil
		})
		return err
	}

	create := func(name string, finalizers ...string) *v1.Pod {
		pod, err := pods.Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec: v1.PodSpec{NodeName: "node", AutomountServiceAccountToken: new(false), Containers: []v1.Container{{
				Name: "main", Image: "image:1", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v",
					ReadOnly: true}},
			}}, Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		harness.Eventually(t, within, "watched", func() error {
			if _, ok := src.ByUID(pod.UID); !ok {
				return errors.New("not yet")
			}
			return nil
		})
		return pod
	}
	count := func(want int64, what string) {
		t.Helper()
		time.Sleep(500 * time.Millisecond) // for what is repeated
		assert.Equal(t, want, n.Swap(0), what)
	}
	ready := func(name string, want v1.ConditionStatus) func() error {
		return func() error {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == v1.PodReady && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("conditions: %v", pod.Status.Conditions)
		}
	}
	web := create("web")
	n.Store(0)

	require.NoError(t, deliver(web, generated(web, false)))
	count(1, "one patch; what the server makes of it is no reason for another one")
	require.NoError(t, ready("web", v1.ConditionTrue)())
	_, err = sink.Deliver(ctx, web, generated(web, false))
	require.NoError(t, err)
	count(0, "the same status")

	for _, patch := range []string{
		`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
	} {
		_, err = pods.Patch(ctx, "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	harness.Eventually(t, within, "what was overwritten is written again", ready("web", v1.ConditionTrue))
	count(1, "for the one that was overwritten")
	got, err := pods.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(got.Status.Conditions), "example.com/gate")

	require.NoError(t, pods.Delete(ctx, "web", metav1.DeleteOptions{}))
	require.NoError(t, deliver(web, generated(web, true)))
	gone := func(name string) func() error {
		return func() error {
			if _, err := pods.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it still exists: %v", err)
			}
			return nil
		}
	}
	harness.Eventually(t, within, "deleted", gone("web"))
	count(2, "the final status and the deletion")

	t.Run("a recreated pod", func(t *testing.T) {
		again := create("web")
		old := again.DeepCopy()
		old.UID = web.UID
		behind, err := podstatus.New(client, stale{old}, opts)
		require.NoError(t, err)
		_, err = behind.Deliver(ctx, old, generated(old, false))
		assert.ErrorIs(t, err, status.ErrGone)
		pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, v1.PodPending, pod.Status.Phase)
		assert.Nil(t, pod.DeletionTimestamp)
	})
	t.Run("a refused status", func(t *testing.T) {
		pod := create("refused")
		n.Store(0)
		s := generated(pod, false)
		s.PodIP, s.PodIPs = "nonsense", []v1.PodIP{{IP: "nonsense"}}
		began := time.Now()
		require.ErrorIs(t, deliver(pod, s), status.ErrRefused)
		time.Sleep(500 * time.Millisecond) // for what is repeated
		sent := n.Swap(0)
		assert.Positive(t, sent)
		assert.LessOrEqual(t, sent, 1+int64(time.Since(began)/(2*time.Second)),
			"sent once; a repetition comes 2 s later at the earliest")
		// Its repetitions would count below.
		require.NoError(t, pods.Delete(ctx, "refused", *metav1.NewDeleteOptions(0)))
		store.PodEnded(kit.RefOf(pod))
	})
	t.Run("finalizers", func(t *testing.T) {
		pod := create("kept", "example.com/keep")
		require.NoError(t, deliver(pod, generated(pod, false)))
		require.NoError(t, pods.Delete(ctx, "kept", metav1.DeleteOptions{}))
		harness.Eventually(t, within, "its deletion is watched", func() error {
			if pod, ok := src.ByUID(pod.UID); !ok || pod.DeletionTimestamp == nil {
				return errors.New("not yet")
			}
			return nil
		})
		n.Store(0)
		require.NoError(t, deliver(pod, generated(pod, true)))
		count(2, "the final status and one deletion")
		_, err := pods.Patch(ctx, "kept", types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
		require.NoError(t, err)
		harness.Eventually(t, within, "gone with its last finalizer", gone("kept"))
	})
	t.Run("a mirror pod", func(t *testing.T) {
		static := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "static-node", Namespace: "shop", UID: "hash",
				Annotations: map[string]string{
					podspec.AnnotationConfigSource: "file", podspec.AnnotationConfigHash: "hash",
				}},
			Spec: v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "main", Image: "image:1"}}},
		}
		n.Store(0)
		require.NoError(t, deliver(static, generated(static, false)))
		count(2, "created, with its status")
		mirror, err := pods.Get(ctx, "static-node", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, nodeObject.UID, mirror.OwnerReferences[0].UID)
		assert.Equal(t, v1.PodRunning, mirror.Status.Phase)
		require.NoError(t, pods.Delete(ctx, "static-node", metav1.DeleteOptions{}))
		harness.Eventually(t, within, "made again", func() error {
			pod, err := pods.Get(ctx, "static-node", metav1.GetOptions{})
			if err != nil || pod.UID == mirror.UID || pod.Status.Phase != v1.PodRunning {
				return fmt.Errorf("not yet: %w", err)
			}
			return nil
		})
		store.PodEnded(kit.RefOf(static))
		harness.Eventually(t, within, "deleted with its static pod", gone("static-node"))
	})
}

// results is a sink that records the results of deliveries.
type results struct {
	status.Sink
	mu   sync.Mutex
	errs map[types.UID][]error
}

func (r *results) Deliver(ctx context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	result, err := r.Sink.Deliver(ctx, pod, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[pod.UID] = append(r.errs[pod.UID], err)
	return result, err
}

func (r *results) of(uid types.UID) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs[uid])
}
