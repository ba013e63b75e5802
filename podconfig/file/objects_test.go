package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

func secretOf(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %q}\nstringData: {value: %q}\n", name, value)
}

// consumer is a pod that takes a variable from a secret.
func consumer(name, secret string) string {
	return manifestOf(name, "1") + "---\n" + fmt.Sprintf(
		"{apiVersion: v1, kind: Pod, metadata: {name: %s-2}, spec: {containers: [{name: c, image: \"1\", envFrom: [{secretRef: {name: %s}}]}]}}\n", name, secret)
}

// valueOf is the value of a secret in the namespace "default", or the error.
func valueOf(t *testing.T, src objects.Source, name string) string {
	t.Helper()
	s, err := src.Secret(t.Context(), "default", name)
	if err != nil {
		return err.Error()
	}
	return string(s.Data["value"])
}

func TestObjectsAmongManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, consumer("a", "db")+"---\n"+secretOf("db", "1"))

	s := New(dir, Options{CheckFrequency: time.Hour, Objects: true})
	src := s.Objects()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	seen := make(chan string, 100)
	wg.Go(func() {
		assert.NoError(t, s.Run(ctx, sink(func(pods []*v1.Pod) {
			seen <- fmt.Sprint(len(pods), " pods, ", valueOf(t, src, "db"))
		})))
	})
	assert.Equal(t, "2 pods, 1", <-seen, "the objects come before the pods")

	changes := make(chan []objects.Ref, 100)
	wg.Go(func() { assert.NoError(t, src.Watch(ctx, func(refs []objects.Ref) { changes <- refs })) })
	assert.Nil(t, <-changes)
	write(t, filepath.Join(dir, "b.yaml"), "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: shop}}\n")
	assert.Equal(t, []objects.Ref{{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}}, <-changes)
	require.NoError(t, os.Remove(path))
	assert.Equal(t, []objects.Ref{{Kind: "Secret", Namespace: "default", Name: "db"}}, <-changes)
	assert.Equal(t, "0 pods, "+`secret "db" not found`, <-seen)
}

func TestObjectsAreRefusedUnlessAskedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	assert.Nil(t, New(dir, Options{}).Objects())
	r := start(t, dir, 0)
	r.expect()
	write(t, filepath.Join(dir, "a.yaml"), secretOf("db", "1"))
	r.expectProblem(`a.yaml: kind: Unsupported value: "Secret"`)
	write(t, filepath.Join(dir, "b.yaml"), consumer("a", "db"))
	r.expectProblem(`b.yaml: document 2 (line 5): pod default/a-2-node is invalid: spec.containers[0].envFrom[0].secretRef: Forbidden: static pods may not reference secrets`)
}

func TestDirectoryOfObjects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	problems := make(chan string, 100)
	src := NewObjects(dir, Options{CheckFrequency: time.Hour, Problem: func(path string, err error) {
		problems <- fmt.Sprintf("%s: %v", filepath.Base(path), err)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	changes := make(chan []objects.Ref, 100)
	go func() { done <- src.Watch(ctx, func(refs []objects.Ref) { changes <- refs }) }()
	assert.Equal(t, `secret "db" not found`, valueOf(t, src, "db"), "a directory that is not there has nothing")
	assert.Nil(t, <-changes)
	require.ErrorIs(t, src.Watch(ctx, func([]objects.Ref) {}), ErrRunning)

	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "db.yaml"), secretOf("db", "1"))
	assert.Equal(t, []objects.Ref{{Kind: "Secret", Namespace: "default", Name: "db"}}, <-changes)
	assert.Equal(t, "1", valueOf(t, src, "db"))
	write(t, filepath.Join(dir, "pod.yaml"), manifestOf("a", "1"))
	assert.Equal(t, `pod.yaml: kind: Unsupported value: "Pod": supported values: "Secret", "ConfigMap", "SecretList", "ConfigMapList", "List"`, <-problems)

	cancel()
	require.NoError(t, <-done)
}

func TestUnreadableObjectsAreNotMissing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(dir, dir))
	src := NewObjects(dir, Options{CheckFrequency: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- src.Watch(ctx, func([]objects.Ref) {}) }()
	_, err := src.Secret(ctx, "default", "db")
	require.ErrorIs(t, err, objects.ErrNotSet)
	assert.False(t, apierrors.IsNotFound(err))
	cancel()
	require.NoError(t, <-done)
}

// drive is a state whose looks the test makes itself, at a time when no file is
// young.
func drive(t *testing.T, dir string, opts Options) (s *state, look func()) {
	s = newState(dir, "n", opts)
	s.store = objects.New()
	return s, func() {
		s.suspectAll() // the clock of the file system is coarse
		s.look(t.Context(), time.Now().Add(time.Hour))
	}
}

func TestObjectsOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	problems := map[string]string{}
	s, look := drive(t, dir, Options{Problem: func(path string, err error) {
		problems[filepath.Base(path)] = fmt.Sprint(err)
	}})

	// Who had an object first keeps it.
	write(t, b, secretOf("db", "b"))
	look()
	write(t, a, secretOf("db", "a")+"---\n"+strings.Replace(secretOf("db", ""), "Secret", "ConfigMap", 1))
	look()
	assert.Contains(t, problems["a.yaml"], `unknown field "stringData"`)
	write(t, a, secretOf("db", "a"))
	look()
	assert.Equal(t, `metadata.name: Duplicate value: "default/db": secret default/db is left out because b.yaml has the same; remove one of them`, problems["a.yaml"])
	assert.Equal(t, "b", valueOf(t, s.store, "db"))
	require.NoError(t, os.Remove(b))
	look()
	assert.Equal(t, "a", valueOf(t, s.store, "db"))
	assert.Equal(t, "<nil>", problems["a.yaml"])

	// What is good stays while the file is broken.
	write(t, a, secretOf("DB", "c"))
	look()
	assert.Contains(t, problems["a.yaml"], `secret default/DB is invalid: metadata.name: Invalid value: "DB"`)
	assert.Equal(t, "a", valueOf(t, s.store, "db"))
}

func TestImmutableObject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	var problem error
	s, look := drive(t, dir, Options{Problem: func(_ string, err error) { problem = err }})
	immutable := secretOf("db", "1") + "immutable: true\n"
	write(t, path, immutable)
	look()
	write(t, path, "# the same\n"+immutable)
	look()
	require.NoError(t, problem)
	write(t, path, secretOf("db", "2"))
	look()
	require.EqualError(t, problem, "secret default/db cannot be changed: ["+
		"immutable: Forbidden: field is immutable when `immutable` is set; remove the object before you add it anew, "+
		"data: Forbidden: field is immutable when `immutable` is set; remove the object before you add it anew]")
	assert.Equal(t, "1", valueOf(t, s.store, "db"))
	require.NoError(t, os.Remove(path))
	look()
	write(t, path, secretOf("db", "2"))
	look()
	require.NoError(t, problem)
	assert.Equal(t, "2", valueOf(t, s.store, "db"))
}

func TestModeOfSecretsIsWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	old := time.Now().Add(-2 * time.Hour)
	var said []string
	s, _ := drive(t, dir, Options{Logger: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})})
	step := func(content string, mode os.FileMode) []string {
		said = nil
		if was, _ := os.ReadFile(path); content != string(was) {
			write(t, path, content)
			old = old.Add(time.Second)
			require.NoError(t, os.Chtimes(path, old, old))
		}
		require.NoError(t, os.Chmod(path, mode))
		s.look(t.Context(), time.Now())
		s.look(t.Context(), time.Now())
		return said
	}
	assert.Empty(t, step("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", 0o644), "no secret")
	assert.Empty(t, step(secretOf("db", "1"), 0o600))
	warned := step(secretOf("db", "1"), 0o640)
	require.Len(t, warned, 1, "a change of the mode alone is seen")
	assert.Contains(t, warned[0], "open to others than its owner")
	assert.Contains(t, warned[0], `"mode"="0640"`)
	assert.Contains(t, warned[0], path)
	assert.Empty(t, step(secretOf("db", "2"), 0o640), "said once")
	assert.Empty(t, step(secretOf("db", "2"), 0o400))
	assert.Len(t, step(secretOf("db", "2"), 0o604), 1, "and again when it is so again")
}
