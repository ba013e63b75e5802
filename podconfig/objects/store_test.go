package objects_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secret(name, value string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string][]byte{"value": []byte(value)},
	}
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	s := objects.New()
	first := secret("a", "1")
	s.Set(first, secret("a", "2"), configMap("a", "3"),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})

	got, err := s.Secret(t.Context(), "default", "a")
	require.NoError(t, err)
	assert.Same(t, first, got)
	m, err := s.ConfigMap(t.Context(), "default", "a")
	require.NoError(t, err)
	assert.Equal(t, "3", m.Data["value"])

	_, err = s.Secret(t.Context(), "default", "b")
	assert.True(t, apierrors.IsNotFound(err))
	require.EqualError(t, err, `secret "b" not found`)
	_, err = s.ConfigMap(t.Context(), "other", "a")
	assert.True(t, apierrors.IsNotFound(err))
	require.EqualError(t, err, `configmap "a" not found`)
}

func TestLookupWaitsForTheFirstSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := objects.New()
		began := time.Now()
		_, err := s.Secret(t.Context(), "default", "a")
		require.ErrorIs(t, err, objects.ErrNotSet)
		assert.False(t, apierrors.IsNotFound(err), "it may well be there")
		assert.Equal(t, time.Second, time.Since(began))

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.ConfigMap(ctx, "default", "a")
		require.ErrorIs(t, err, context.Canceled)

		time.AfterFunc(time.Second/2, func() { s.Set(secret("a", "1")) })
		_, err = s.Secret(t.Context(), "default", "a")
		require.NoError(t, err)
	})
}

// watching is a call of Watch and the changes that it has reported.
type watching struct {
	reported [][]objects.Ref
	stop     func()
}

func watch(t *testing.T, s *objects.Store, during func()) *watching {
	w := &watching{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Watch(ctx, func(refs []objects.Ref) {
			w.reported = append(w.reported, refs)
			during()
		})
	}()
	w.stop = func() { cancel(); require.NoError(t, <-done) }
	synctest.Wait()
	return w
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := objects.New()
		early := watch(t, s, func() {})
		assert.Empty(t, early.reported)
		a, b := secret("a", "1"), configMap("b", "1")
		s.Set(a, b)
		synctest.Wait()
		late := watch(t, s, func() {})
		assert.Equal(t, [][]objects.Ref{nil}, early.reported, "lookups can be answered")
		assert.Equal(t, [][]objects.Ref{nil}, late.reported)

		for _, step := range []struct {
			set  []metav1.Object
			want []objects.Ref
		}{
			{[]metav1.Object{b, a}, nil},
			{[]metav1.Object{b, secret("a", "1")}, nil},
			{[]metav1.Object{b, secret("a", "2")}, []objects.Ref{objects.RefOf(a)}},
			{[]metav1.Object{secret("a", "2")}, []objects.Ref{objects.RefOf(b)}},
			{[]metav1.Object{secret("a", "2"), secret("b", "")}, []objects.Ref{{Kind: "Secret", Namespace: "default", Name: "b"}}},
			{nil, []objects.Ref{objects.RefOf(a), {Kind: "Secret", Namespace: "default", Name: "b"}}},
		} {
			early.reported = nil
			s.Set(step.set...)
			synctest.Wait()
			if step.want == nil {
				assert.Empty(t, early.reported)
				continue
			}
			require.Len(t, early.reported, 1)
			assert.ElementsMatch(t, step.want, early.reported[0])
		}
		early.stop()
		assert.Len(t, late.reported, 5)
		late.stop()
		assert.Zero(t, s.Watchers())
	})
}

func TestWatcherThatIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := objects.New()
		s.Set()
		release := make(chan struct{})
		w := watch(t, s, func() { <-release })
		for _, value := range []string{"1", "2", "3"} {
			s.Set(secret("a", value), configMap("b", value))
		}
		close(release)
		synctest.Wait()
		require.Len(t, w.reported, 2)
		assert.ElementsMatch(t, []objects.Ref{objects.RefOf(secret("a", "")), objects.RefOf(configMap("b", ""))},
			w.reported[1])
		assert.False(t, slices.ContainsFunc(w.reported[1:], func(refs []objects.Ref) bool { return refs == nil }),
			"no report that any object may have changed")
		w.stop()
	})
}
