package objectcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// keeping runs a store in the directory over the cache, as an agent does.
func (w *world) keeping(dir string, test func(kept objects.Source, store *checkpoint.Dir, restored []*v1.Pod)) {
	w.t.Helper()
	store, err := checkpoint.New(dir, checkpoint.Options{})
	require.NoError(w.t, err)
	restored := store.Load(w.t.Context())
	kept := store.Objects(w.Cache)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 2)
	go func() { done <- store.Run(ctx) }()
	go func() { done <- kept.Watch(ctx, func([]objects.Ref) {}) }()
	synctest.Wait()
	test(kept, store, restored)
	synctest.Wait()
	cancel()
	require.NoError(w.t, <-done)
	require.NoError(w.t, <-done)
}

// After a reboot while the API server is away, a pod has the objects of its checkpoint until
// the API server has answered.
func TestReboot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := testpod.New("p", testpod.Namespace("ns"), testpod.Containers("c"))
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}, {Name: "gone"}}
	p.Spec.NodeName = "node"
	manifest.SetDefaults(p)
	value := func(w *world, kept objects.Source, name string) string {
		s, err := kept.Secret(w.t.Context(), "ns", name)
		if err != nil {
			assert.False(w.t, apierrors.IsNotFound(err), err)
			return err.Error()
		}
		return string(s.Data["k"])
	}
	run(t, func(w *world) {
		w.create("s", "1", false)
		w.create("gone", "1", false)
		w.keeping(dir, func(kept objects.Source, store *checkpoint.Dir, _ []*v1.Pod) {
			w.add(p)
			store.Keep(p)
			assert.Equal(t, "1", value(w, kept, "s"))
			assert.Equal(t, "1", value(w, kept, "gone"))
			w.update("s", "2")
		})
	})
	run(t, func(w *world) {
		w.set(errors.New("connection refused"), false)
		w.keeping(dir, func(kept objects.Source, _ *checkpoint.Dir, restored []*v1.Pod) {
			require.Len(t, restored, 1)
			began := time.Now()
			assert.Equal(t, "2", value(w, kept, "s"))
			time.Sleep(time.Hour)
			w.add(p) // the pods were read, and the objects were not
			assert.Equal(t, "2", value(w, kept, "s"))
			time.Sleep(time.Hour)
			assert.Equal(t, "2", value(w, kept, "s"))
			assert.Equal(t, 2*time.Hour, time.Since(began), "no lookup has waited")
			w.create("s", "3", false)
			w.set(nil, false)
			time.Sleep(time.Minute)
			assert.Equal(t, "3", value(w, kept, "s"))
			_, err := kept.Secret(w.t.Context(), "ns", "gone")
			assert.True(t, apierrors.IsNotFound(err), "the API server has answered")
			w.settle()
			require.NoError(t, w.client.CoreV1().Secrets("ns").Delete(w.t.Context(), "s", metav1.DeleteOptions{}))
			synctest.Wait()
			_, err = kept.Secret(w.t.Context(), "ns", "s")
			assert.True(t, apierrors.IsNotFound(err))
		})
	})
}
