package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func secretOf(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %q}\nstringData: {value: %q}\n", name, value)
}

// consumer returns a pod, and another one that takes variables from a secret.
func consumer(name, secret string) string {
	return manifestOf(name, "1") + "---\n" + fmt.Sprintf(
		"{apiVersion: v1, kind: Pod, metadata: {name: %s-2}, spec: {containers: [{name: c, image: \"1\", envFrom: "+
			"[{secretRef: {name: %s}}]}]}}\n", name, secret)
}

// valueOf returns the value of a secret in the namespace "default", or the error.
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

	s := file.New(dir, file.Options{CheckFrequency: time.Hour, Objects: true})
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
	write(t, filepath.Join(dir, "b.yaml"), "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, "+
		"metadata: {name: conf, namespace: shop}}\n")
	assert.Equal(t, []objects.Ref{{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}}, <-changes)
	require.NoError(t, os.Remove(path))
	assert.Equal(t, []objects.Ref{{Kind: "Secret", Namespace: "default", Name: "db"}}, <-changes)
	assert.Equal(t, "0 pods, "+`secret "db" not found`, <-seen)
}

func TestObjectsAreRefusedByDefault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	assert.Nil(t, file.New(dir, file.Options{}).Objects())
	r := start(t, dir, 0)
	r.expect()
	write(t, filepath.Join(dir, "a.yaml"), secretOf("db", "1"))
	r.expectProblem(`a.yaml: kind: Unsupported value: "Secret"`)
	write(t, filepath.Join(dir, "b.yaml"), consumer("a", "db"))
	r.expectProblem(
		`b.yaml: document 2 (line 5): pod default/a-2-node is invalid: spec.containers[0].envFrom[0].secretRef: Forbidden: static pods may not reference secrets`)
}

func TestDirectoryOfObjects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	problems := make(chan string, 100)
	src := file.NewObjects(dir, file.Options{CheckFrequency: time.Hour, Problem: func(path string, err error) {
		problems <- fmt.Sprintf("%s: %v", filepath.Base(path), err)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	changes := make(chan []objects.Ref, 100)
	go func() { done <- src.Watch(ctx, func(refs []objects.Ref) { changes <- refs }) }()
	assert.Equal(t, `secret "db" not found`, valueOf(t, src, "db"), "a directory that does not exist is empty")
	assert.Nil(t, <-changes)
	require.ErrorIs(t, src.Watch(ctx, func([]objects.Ref) {}), runtime.ErrAlreadyRunning)

	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "db.yaml"), secretOf("db", "1"))
	assert.Equal(t, []objects.Ref{{Kind: "Secret", Namespace: "default", Name: "db"}}, <-changes)
	assert.Equal(t, "1", valueOf(t, src, "db"))
	write(t, filepath.Join(dir, "pod.yaml"), manifestOf("a", "1"))
	assert.Equal(t,
		`pod.yaml: kind: Unsupported value: "Pod": supported values: "Secret", "ConfigMap", "SecretList", "ConfigMapList", "List"`, <-problems)

	cancel()
	require.NoError(t, <-done)
}

func TestUnreadableObjectsAreNotMissing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(dir, dir))
	src := file.NewObjects(dir, file.Options{CheckFrequency: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- src.Watch(ctx, func([]objects.Ref) {}) }()
	_, err := src.Secret(ctx, "default", "db")
	require.ErrorIs(t, err, objects.ErrNotSet)
	assert.False(t, apierrors.IsNotFound(err))
	cancel()
	require.NoError(t, <-done)
}
