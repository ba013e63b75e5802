package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func pod(name, image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-" + types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image, ImagePullPolicy: v1.PullAlways}}},
	}
}

func TestArchives(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("test")
		a := &archives{dir: dir, load: func(_ context.Context, path string) error {
			assert.Equal(t, "docker.io_library_nginx_1.29.tar", filepath.Base(path))
			rt.AddImage(fake.Image{Name: "nginx:1.29"})
			return nil
		}}
		agent, err := newAgent(rt, source, root, a, logr.Discard())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx) }()
		source.Set(pod("web", "nginx:1.29"))
		waiting := func() *v1.ContainerStateWaiting {
			time.Sleep(11 * time.Second)
			synctest.Wait()
			return agent.Pods()[0].Status.ContainerStatuses[0].State.Waiting
		}
		why := waiting()
		require.NotNil(t, why)
		assert.Equal(t, "ErrImagePull", why.Reason)
		assert.Equal(t, "no archive "+filepath.Join(dir, "docker.io_library_nginx_1.29.tar"), why.Message)

		require.NoError(t, os.WriteFile(filepath.Join(dir, "docker.io_library_nginx_1.29.tar"), nil, 0o600))
		assert.Nil(t, waiting())
		assert.Equal(t, v1.PodRunning, agent.Pods()[0].Status.Phase)
		for _, c := range rt.Calls(fake.Target{}) {
			assert.NotEqual(t, "PullImage", c.Method)
		}
		cancel()
		require.NoError(t, <-done)
	})
}

func TestLoadBy(t *testing.T) {
	require.NoError(t, loadBy("test -d")(t.Context(), t.TempDir()))
	assert.ErrorContains(t, loadBy("ls -d")(t.Context(), "/no such"), "ls -d /no such: exit status 2")
}
