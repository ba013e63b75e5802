package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func makePod(name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := testpod.New(name, testpod.Source("http"), testpod.Containers("c"))
	pod.Spec.NodeName = "node"
	manifest.SetDefaults(pod)
	for _, c := range change {
		c(pod)
	}
	return pod
}

func withSecret(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}}
	}
}

func secret(name, value string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Type:       v1.SecretTypeOpaque, Data: map[string][]byte{"key": []byte(value)},
	}
}

// logs collects what is logged.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, args)
	}, funcr.Options{})
}

func (l *logs) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.lines, "\n")
	l.lines = nil
	return all
}

// life runs a store as one run of an agent does.
func life(t *testing.T, dir string, opts checkpoint.Options, during func(s *checkpoint.Dir, restored []*v1.Pod)) {
	t.Helper()
	s, err := checkpoint.New(dir, opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1) // one value, of the one goroutine
	restored := s.Load(ctx)
	go func() { done <- s.Run(ctx) }()
	during(s, restored)
	cancel()
	require.NoError(t, <-done)
	assert.ErrorIs(t, s.Run(ctx), runtime.ErrAlreadyRunning)
}

func names(pods []*v1.Pod) []string {
	var list []string
	for _, p := range pods {
		list = append(list, p.Name)
	}
	return list
}

func TestPodsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "checkpoint")
		a, b, c := makePod("a"), makePod("b"), makePod("c")
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, restored []*v1.Pod) {
			assert.Empty(t, restored)
			for _, pod := range []*v1.Pod{c, a, b} {
				s.Keep(pod)
			}
			s.Drop("never-kept")
			synctest.Wait()
			s.Drop(b.UID)
		})
		before, err := os.Stat(filepath.Join(dir, "pods/uid-a.checkpoint"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), before.Mode().Perm())
		life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, restored []*v1.Pod) {
			require.Equal(t, []*v1.Pod{a, c}, restored)
			s.Keep(makePod("a"))
			s.Keep(makePod("c", func(pod *v1.Pod) { pod.Labels = map[string]string{"new": "yes"} }))
		})
		after, err := os.Stat(filepath.Join(dir, "pods/uid-a.checkpoint"))
		require.NoError(t, err)
		assert.True(t, os.SameFile(before, after), "a pod that has not changed is not written again")
		life(t, dir, checkpoint.Options{}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
			require.Equal(t, []string{"a", "c"}, names(restored))
			assert.Equal(t, "yes", restored[1].Labels["new"])
		})
	})
}

func TestUnusableRecordsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	pods := filepath.Join(dir, "pods")
	life(t, dir, checkpoint.Options{}, func(s *checkpoint.Dir, _ []*v1.Pod) {
		for _, name := range []string{"good", "torn", "renamed", "open"} {
			s.Keep(makePod(name))
		}
	})
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(pods, name), data, 0o600))
	}
	torn, err := os.ReadFile(filepath.Join(pods, "uid-torn.checkpoint"))
	require.NoError(t, err)
	write("uid-torn.checkpoint", torn[:len(torn)/2])
	require.NoError(t, os.Rename(filepath.Join(pods, "uid-renamed.checkpoint"),
		filepath.Join(pods, "uid-other.checkpoint")))
	require.NoError(t, os.Chmod(filepath.Join(pods, "uid-open.checkpoint"), 0o666))
	write("uid-newer.checkpoint", []byte("kubeletkit-checkpoint 7 x\n"))
	write("uid-empty.checkpoint", nil)
	write("notes.txt", []byte("what is this directory?"))
	write(".new-123", []byte("half of a rec"))
	record, err := checkpoint.Pack("uid-bad",
		[]byte(`{"metadata":{"name":"bad","namespace":"default","uid":"uid-bad"},"spec":{}}`))
	require.NoError(t, err)
	write("uid-bad.checkpoint", record)
	require.NoError(t, os.Mkdir(filepath.Join(pods, "uid-dir.checkpoint"), 0o700))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(pods, "uid-link.checkpoint")))

	var l logs
	life(t, dir, checkpoint.Options{Logger: l.logger()}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
		assert.Equal(t, []string{"good"}, names(restored))
	})
	logged := l.take()
	for _, want := range []string{
		"is damaged", "is no checkpoint of that name: the pod in it has UID",
		"has mode 0666: other users can write to it",
		"was written by a newer version (format 7, known is 1)", "notes.txt", "in it is not valid",
		"uid-dir", "uid-link",
	} {
		assert.Contains(t, logged, want)
	}
	left, err := os.ReadDir(pods)
	require.NoError(t, err)
	assert.Len(t, left, 1)
	aside, err := os.ReadDir(filepath.Join(dir, "aside"))
	require.NoError(t, err)
	assert.Len(t, aside, 9)
	life(t, dir, checkpoint.Options{Logger: l.logger()}, func(*checkpoint.Dir, []*v1.Pod) {})
	assert.Empty(t, l.take(), "logged once")
}

// TestWritesGoOnWhenTheyCan has a file in place of the directory, so that writes fail.
func TestWritesGoOnWhenTheyCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var l logs
		life(t, dir, checkpoint.Options{Logger: l.logger()}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			obstacle := filepath.Join(dir, "pods")
			require.NoError(t, os.WriteFile(obstacle, nil, 0o600))
			for i := range 10 {
				s.Keep(makePod(fmt.Sprint("p", i)))
			}
			time.Sleep(time.Hour)
			s.Drop("uid-p9")
			logged := l.take()
			assert.Equal(t, 1, strings.Count(logged, "Cannot write checkpoints"), logged)
			require.NoError(t, os.Remove(obstacle))
			time.Sleep(time.Minute)
			assert.Contains(t, l.take(), "Checkpoints are written again")
			files, err := os.ReadDir(obstacle)
			require.NoError(t, err)
			assert.Len(t, files, 9)
		})
	})
}

// objectSource is a source that a test controls.
type objectSource struct {
	mu      sync.Mutex
	err     error
	secrets map[string]*v1.Secret
	changed chan []objects.Ref
}

func (o *objectSource) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.secrets[name]; s != nil || o.err != nil {
		return s, o.err
	}
	return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
}

func (o *objectSource) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(v1.Resource("configmaps"), name)
}

func (o *objectSource) Watch(ctx context.Context, changed func([]objects.Ref)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case refs := <-o.changed:
			changed(refs)
		}
	}
}

func TestObjectsComeBack(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	unreachable := errors.New("unreachable")
	// step runs a store with the source. A source with secrets reports at the start that
	// lookups can be answered.
	step := func(t *testing.T, dir string, opts checkpoint.Options, source *objectSource,
		during func(s *checkpoint.Dir, src objects.Source)) {
		source.changed = make(chan []objects.Ref)
		s, err := checkpoint.New(dir, opts)
		require.NoError(t, err)
		src := s.Objects(source)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		s.Load(ctx)
		running.Go(func() { assert.NoError(t, s.Run(ctx)) })
		running.Go(func() { assert.NoError(t, src.Watch(ctx, func([]objects.Ref) {})) })
		if source.secrets != nil {
			source.changed <- nil
			synctest.Wait() // until the store has received the report
		}
		during(s, src)
		synctest.Wait()
		cancel()
		running.Wait()
	}
	value := func(t *testing.T, src objects.Source, name string) string {
		s, err := src.Secret(t.Context(), "default", name)
		require.NoError(t, err)
		return string(s.Data["key"])
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		opts := checkpoint.Options{Key: key}
		pod := makePod("a", withSecret("s"))
		there := &objectSource{secrets: map[string]*v1.Secret{"s": secret("s", "hidden"),
			"unused": secret("unused", "x")}}
		step(t, dir, opts, there, func(s *checkpoint.Dir, src objects.Source) {
			s.Keep(pod)
			synctest.Wait()
			assert.Equal(t, "x", value(t, src, "unused"))
		})
		files, err := filepath.Glob(filepath.Join(dir, "objects/*"))
		require.NoError(t, err)
		require.Len(t, files, 1, "an object that no pod refers to is not kept")
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		assert.NotContains(t, string(data), "aGlkZGVu", "base64 of hidden")

		away := &objectSource{err: unreachable}
		step(t, dir, opts, away, func(_ *checkpoint.Dir, src objects.Source) {
			assert.Equal(t, "hidden", value(t, src, "s"))
			_, err := src.Secret(t.Context(), "default", "unused")
			assert.ErrorIs(t, err, unreachable)
		})
		late := &objectSource{}
		step(t, dir, opts, late, func(_ *checkpoint.Dir, src objects.Source) {
			assert.Equal(t, "hidden", value(t, src, "s"), "the source has not reported yet")
			late.mu.Lock()
			late.secrets = map[string]*v1.Secret{"s": secret("s", "changed")}
			late.mu.Unlock()
			late.changed <- nil
			synctest.Wait()
			assert.Equal(t, "changed", value(t, src, "s"))
		})
		step(t, dir, opts, &objectSource{err: unreachable}, func(_ *checkpoint.Dir, src objects.Source) {
			assert.Equal(t, "changed", value(t, src, "s"), "the store has looked it up by itself")
		})
		var l logs
		step(t, dir, checkpoint.Options{Key: key[:16], Logger: l.logger()}, &objectSource{err: unreachable},
			func(_ *checkpoint.Dir, src objects.Source) {
				_, err := src.Secret(t.Context(), "default", "s")
				assert.ErrorIs(t, err, unreachable)
			})
		assert.Contains(t, l.take(), "cannot be decrypted")
		step(t, dir, opts, there, func(*checkpoint.Dir, objects.Source) {})
		gone := &objectSource{secrets: map[string]*v1.Secret{}}
		step(t, dir, opts, gone, func(_ *checkpoint.Dir, src objects.Source) {
			_, err := src.Secret(t.Context(), "default", "s")
			assert.True(t, apierrors.IsNotFound(err))
		})
		files, err = filepath.Glob(filepath.Join(dir, "objects/*"))
		require.NoError(t, err)
		assert.Empty(t, files, "the source has reported that the secret does not exist")

		step(t, dir, opts, there, func(s *checkpoint.Dir, _ objects.Source) {
			synctest.Wait()
			s.Drop(pod.UID)
		})
		files, err = filepath.Glob(filepath.Join(dir, "objects/*"))
		require.NoError(t, err)
		assert.Empty(t, files, "objects go with the last pod that refers to them")
	})
}
