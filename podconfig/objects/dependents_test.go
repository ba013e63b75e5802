package objects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// scriptedObjects is a source that only its watches matter of: each is a function.
type scriptedObjects struct {
	runtime.Objects
	watches []func(ctx context.Context, changed func([]Ref)) error
	began   []time.Duration // since start
	start   time.Time
}

func (s *scriptedObjects) Watch(ctx context.Context, changed func([]Ref)) error {
	s.began = append(s.began, time.Since(s.start))
	watch := s.watches[0]
	if len(s.watches) > 1 {
		s.watches = s.watches[1:]
	}
	return watch(ctx, changed)
}

func podWithSecrets(name string, secrets ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return pod
}

type podList []*v1.Pod

func (l podList) Pods() []*v1.Pod { return l }

func TestDependents(t *testing.T) {
	t.Parallel()
	pods := podList{podWithSecrets("a", "s1"), podWithSecrets("b", "s1", "s2"), podWithSecrets("c")}
	d := NewDependents(&scriptedObjects{}, pods, logr.Logger{})
	due := func() []string {
		var names []string
		for _, pod := range d.Due(time.Now()) {
			names = append(names, pod.Name)
		}
		return names
	}
	ref := func(name string) []Ref { return []Ref{{SecretKind, "ns", name}} }
	assert.Empty(t, due())
	d.note(ref("s2"))
	assert.Equal(t, []string{"b"}, due())
	assert.Empty(t, due(), "each change once")
	d.note(ref("s1"))
	d.note(ref("s2"))
	assert.Equal(t, []string{"a", "b"}, due())
	d.note(ref("other"))
	d.note([]Ref{{ConfigMapKind, "ns", "s1"}, {SecretKind, "elsewhere", "s1"}})
	assert.Empty(t, due())
	d.note(nil)
	assert.Equal(t, []string{"a", "b"}, due(), "all that refer to anything")
}

func TestDependentsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context, func([]Ref)) error { return errors.New("away") }
		panics := func(context.Context, func([]Ref)) error { panic("oops") }
		failsLate := func(_ context.Context, changed func([]Ref)) error {
			changed(nil)
			time.Sleep(restarts.Max)
			return errors.New("away again")
		}
		completes := func(context.Context, func([]Ref)) error { return nil }
		src := &scriptedObjects{start: time.Now(), watches: []func(context.Context, func([]Ref)) error{fails, panics, failsLate, fails, completes}}
		pods := podList{podWithSecrets("a", "s")}
		d := NewDependents(src, pods, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 1 * time.Second, 3 * time.Second, 64 * time.Second, 66 * time.Second}, src.began)
		assert.Len(t, d.Due(time.Now()), 1)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestDependentsOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d := NewDependents(nil, podList{}, logr.Discard())
		require.NoError(t, d.Run(ctx))
		assert.Empty(t, d.Due(time.Now()))
	})
}

func TestDependentsRunEndsDuringBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedObjects{watches: []func(context.Context, func([]Ref)) error{
			func(context.Context, func([]Ref)) error { return errors.New("away") },
		}}
		d := NewDependents(src, podList{}, logr.Discard())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.NoError(t, d.Run(ctx))
	})
}
