package objects_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

type watchFunc func(ctx context.Context, changed func([]objects.Ref)) error

// scriptedObjects is a source without objects. Each call of Watch runs the next
// function, and then the last one again.
type scriptedObjects struct {
	runtime.Objects
	watches []watchFunc
	began   []time.Duration // since start
	start   time.Time
}

func (s *scriptedObjects) Watch(ctx context.Context, changed func([]objects.Ref)) error {
	s.began = append(s.began, time.Since(s.start))
	watch := s.watches[0]
	if len(s.watches) > 1 {
		s.watches = s.watches[1:]
	}
	return watch(ctx, changed)
}

func podWithSecrets(name string, secrets ...string) *v1.Pod {
	pod := testpod.New(name, testpod.Namespace("ns"))
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return pod
}

type podList []*v1.Pod

func (l podList) Pods() []*v1.Pod { return l }

func TestDependents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testDependents)
}

func testDependents(t *testing.T) {
	pods := podList{podWithSecrets("a", "s1"), podWithSecrets("b", "s1", "s2"), podWithSecrets("c")}
	changes := make(chan []objects.Ref)
	src := &scriptedObjects{watches: []watchFunc{func(ctx context.Context, changed func([]objects.Ref)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case refs := <-changes:
				changed(refs)
			}
		}
	}}}
	d := objects.NewDependents(src, pods.Pods, objects.DependentsOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	note := func(refs []objects.Ref) {
		changes <- refs
		synctest.Wait()
	}
	due := func() []string {
		var names []string
		for _, pod := range d.Due() {
			names = append(names, pod.Name)
		}
		return names
	}
	ref := func(name string) []objects.Ref {
		return []objects.Ref{{Kind: objects.SecretKind, Namespace: "ns", Name: name}}
	}
	assert.Empty(t, due())
	assert.Empty(t, d.Changed())
	note(ref("s2"))
	assert.Len(t, d.Changed(), 1)
	assert.Equal(t, []string{"b"}, due())
	assert.Empty(t, due(), "each change once")
	note(ref("s1"))
	note(ref("s2"))
	assert.Equal(t, []string{"a", "b"}, due())
	note(ref("other"))
	note([]objects.Ref{{Kind: objects.ConfigMapKind, Namespace: "ns", Name: "s1"},
		{Kind: objects.SecretKind, Namespace: "elsewhere", Name: "s1"}})
	assert.Empty(t, due())
	note(nil)
	assert.Equal(t, []string{"a", "b"}, due(), "all that refer to anything")
	cancel()
	require.NoError(t, <-done)
}

func TestDependentsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context, func([]objects.Ref)) error { return errors.New("away") }
		panics := func(context.Context, func([]objects.Ref)) error { panic("oops") }
		failsLate := func(_ context.Context, changed func([]objects.Ref)) error {
			changed(nil)
			time.Sleep(time.Minute)
			return errors.New("away again")
		}
		completes := func(context.Context, func([]objects.Ref)) error { return nil }
		src := &scriptedObjects{start: time.Now(), watches: []watchFunc{fails, panics, failsLate, fails, completes}}
		pods := podList{podWithSecrets("a", "s")}
		var lines []string
		logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		d := objects.NewDependents(src, pods.Pods, objects.DependentsOptions{Logger: logger})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 1 * time.Second, 3 * time.Second, 64 * time.Second, 66 * time.Second},
			src.began)
		assert.Len(t, d.Due(), 1)
		cancel()
		require.NoError(t, <-done)
		require.Len(t, lines, 4)
		assert.Contains(t, lines[0], "away")
		assert.Contains(t, lines[1], "the source of secrets and config maps panicked: panic: oops")
		assert.Contains(t, lines[1], "dependents_test.go", "the stack")
	})
}

func TestDependentsOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d := objects.NewDependents(nil, podList{}.Pods, objects.DependentsOptions{})
		require.NoError(t, d.Run(ctx))
		assert.Empty(t, d.Due())
	})
}

func TestDependentsRunEndsDuringBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedObjects{watches: []watchFunc{
			func(context.Context, func([]objects.Ref)) error { return errors.New("away") },
		}}
		d := objects.NewDependents(src, podList{}.Pods, objects.DependentsOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.NoError(t, d.Run(ctx))
	})
}
