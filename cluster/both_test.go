package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
)

// scriptedSink returns errors and counts calls.
type scriptedSink struct {
	status.SinkBase
	err             error
	later           time.Duration
	delivered, gone int
}

func (s *scriptedSink) Deliver(context.Context, *v1.Pod, v1.PodStatus) (status.Result, error) {
	s.delivered++
	return status.Result{Later: s.later}, s.err
}

func (s *scriptedSink) PodGone(context.Context, runtime.PodRef, *v1.PodStatus) error {
	s.gone++
	return s.err
}

// Both sinks receive everything, and an error of either has it repeated. That the pod is gone
// in the API ends the repeats, unless the other sink still needs them.
func TestBothSinks(t *testing.T) {
	failure, other := errors.New("api"), errors.New("other")
	for name, tc := range map[string]struct{ api, other, want error }{
		"none":            {},
		"api":             {api: failure, want: failure},
		"other":           {other: other, want: other},
		"gone in the API": {api: status.ErrGone, want: status.ErrGone},
		"gone, and other": {api: status.ErrGone, other: other, want: other},
		"gone elsewhere":  {other: status.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := &scriptedSink{err: tc.api}, &scriptedSink{err: tc.other}
			sink := joinSinks(a, b)
			_, err := sink.Deliver(t.Context(), &v1.Pod{}, v1.PodStatus{})
			assert.Equal(t, tc.want, err)
			assert.Equal(t, tc.want, sink.PodGone(t.Context(), runtime.PodRef{}, nil))
			assert.Equal(t, []int{1, 1, 1, 1}, []int{a.delivered, a.gone, b.delivered, b.gone})
		})
	}
	a := &scriptedSink{}
	assert.Same(t, a, joinSinks(a, nil))
}

// A status with which one sink waits is not delivered to the other one again.
func TestBothSinksWait(t *testing.T) {
	a, b := &scriptedSink{later: time.Second}, &scriptedSink{}
	sink := joinSinks(a, b)
	deliver := func(message string, want time.Duration) {
		t.Helper()
		result, err := sink.Deliver(t.Context(), &v1.Pod{}, v1.PodStatus{Message: message})
		require.NoError(t, err)
		assert.Equal(t, want, result.Later)
	}
	deliver("1", time.Second)
	deliver("1", time.Second)
	assert.Equal(t, []int{2, 1}, []int{a.delivered, b.delivered})
	deliver("2", time.Second)
	assert.Equal(t, []int{3, 2}, []int{a.delivered, b.delivered})
	a.later = 0
	deliver("2", 0)
	assert.Equal(t, []int{4, 2}, []int{a.delivered, b.delivered})
	b.later = time.Minute
	deliver("3", time.Minute)
	deliver("3", time.Minute)
	assert.Equal(t, []int{6, 4}, []int{a.delivered, b.delivered})
	require.NoError(t, sink.PodGone(t.Context(), runtime.PodRef{}, nil))
	assert.Empty(t, sink.(*sinks).pods)
}

// A status that one of the sinks requests again is delivered again to that one only; the sink of the API makes no
// call if nothing differs.
func TestBothSinksRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake.NewSink(), fake.NewSink()
		store, err := status.New(status.Options{Sink: joinSinks(a, b)})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- store.Run(ctx) }()
		store.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, v1.PodStatus{Phase: v1.PodRunning})
		synctest.Wait()
		a.Request("a")
		synctest.Wait()
		assert.Equal(t, []int{2, 1}, []int{len(a.Calls("a")), len(b.Calls("a"))})
		b.Request("a")
		synctest.Wait()
		assert.Equal(t, []int{3, 2}, []int{len(a.Calls("a")), len(b.Calls("a"))})
		cancel()
		require.NoError(t, <-done)
	})
}

// A sink may request a pod that is gone. Nothing is kept of it.
func TestBothSinksRequestOfAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake.NewSink(), fake.NewSink()
		sink := joinSinks(a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var requested []types.UID
		var watch sync.WaitGroup
		watch.Go(func() { sink.WatchReceiver(ctx, func(uid types.UID) { requested = append(requested, uid) }) })
		_, err := sink.Deliver(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, v1.PodStatus{})
		require.NoError(t, err)
		require.NoError(t, sink.PodGone(ctx, runtime.PodRef{UID: "a"}, nil))
		synctest.Wait()
		b.Request("a")
		b.Request("unknown")
		synctest.Wait()
		assert.Equal(t, []types.UID{"a", "unknown"}, requested)
		assert.Empty(t, sink.(*sinks).pods)
		cancel()
		watch.Wait()
	})
}

// unreferenced is the cache of API objects that no pod refers to.
type unreferenced struct{ objects.Store }

func (*unreferenced) Secret(context.Context, string, string) (*v1.Secret, error) {
	return nil, objectcache.ErrNotReferenced
}

func (*unreferenced) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	if name == "api" {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of the API"}}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

// What pods of the API server refer to is looked up there, everything else locally. A local
// "not found" counts only when the pods of the API server are known.
func TestBothObjects(t *testing.T) {
	local := objects.New()
	local.Set(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "local"}},
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "both"}},
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api"}})
	early := &earlyReferences{}
	both := bothObjects(&unreferenced{}, local, early)
	_, err := both.Secret(t.Context(), "ns", "local")
	require.ErrorIs(t, err, objectcache.ErrNotRead, "a restored pod may refer to it")
	early.setRestored([]*v1.Pod{testpod.New("web", func(pod *v1.Pod) {
		pod.Namespace = "ns"
		pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "both"}}
	})})
	_, err = both.Secret(t.Context(), "ns", "both")
	require.ErrorIs(t, err, objectcache.ErrNotRead)
	secret, err := both.Secret(t.Context(), "ns", "local")
	require.NoError(t, err)
	assert.Equal(t, "local", secret.Name)
	cm, err := both.ConfigMap(t.Context(), "ns", "api")
	require.NoError(t, err)
	assert.Equal(t, "of the API", cm.Name)
	_, err = both.ConfigMap(t.Context(), "ns", "none")
	assert.True(t, apierrors.IsNotFound(err), "the API server has answered: %v", err)
	_, err = both.Secret(t.Context(), "ns", "none")
	require.ErrorIs(t, err, objectcache.ErrNotReferenced)
	early.setListed()
	_, err = both.Secret(t.Context(), "ns", "none")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	secret, err = both.Secret(t.Context(), "ns", "both")
	require.NoError(t, err, "the restored pod is not in the list")
	assert.Equal(t, "both", secret.Name)
	assert.Same(t, local, bothObjects(local, nil, nil))
}

// Changes of both sources arrive, one at a time.
func TestBothObjectsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, local := objects.New(), objects.New()
		api.Set()
		local.Set()
		ctx, cancel := context.WithCancel(t.Context())
		var got [][]objects.Ref
		done := make(chan error)
		go func() {
			done <- bothObjects(api, local, &earlyReferences{}).Watch(ctx,
				func(refs []objects.Ref) { got = append(got, refs) })
		}()
		synctest.Wait()
		assert.Equal(t, [][]objects.Ref{nil, nil}, got)
		for _, store := range []*objects.Store{api, local} {
			store.Set(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
			synctest.Wait()
		}
		ref := objects.Ref{Kind: objects.SecretKind, Namespace: "ns", Name: "s"}
		assert.Equal(t, [][]objects.Ref{{ref}, {ref}}, got[2:])
		cancel()
		require.NoError(t, <-done)
	})
}
