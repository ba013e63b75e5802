package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestWithoutPodLevelResources(t *testing.T) {
	without := agenttest.Options{Configure: func(_ *agenttest.Node,
		opts *kubeletkit.Options) {
		withoutPodLevelResources(opts)
	}}
	agenttest.Run(t, without, func(t *testing.T, n *agenttest.Node) {
		pods := fake.Pods(2, 1)
		given := &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
		pods[0].Spec.Resources = given
		n.Source.Set(pods...)
		n.Sleep(time.Minute)
		require.Len(t, n.Pods(), 2)
		for _, pod := range n.Pods() {
			assert.Equal(t, v1.PodRunning, pod.Status.Phase)
			assert.Nil(t, pod.Spec.Resources)
		}
		assert.Same(t, given, pods[0].Spec.Resources, "the pod of the source is not changed")
	})
}

// Secrets stand among the manifests of pods, or in a directory of their own, and
// then only there.
func TestWhereObjectsAreRead(t *testing.T) {
	dir := t.TempDir()
	pods, apart := filepath.Join(dir, "pods"), filepath.Join(dir, "objects")
	for at, name := range map[string]string{pods: "among", apart: "apart"} {
		require.NoError(t, os.Mkdir(at, 0o700))
		write(t, filepath.Join(at, "s.yaml"), "apiVersion: v1\nkind: Secret\nmetadata: {name: "+name+"}\n")
	}
	for name, tc := range map[string]struct {
		args  []string
		pods  bool
		found string
	}{
		"no paths":        {},
		"manifests":       {args: []string{"--pod-manifest-path", pods}, pods: true, found: "among"},
		"both":            {args: []string{"--pod-manifest-path", pods, "--objects-path", apart}, pods: true, found: "apart"},
		"the same path":   {args: []string{"--pod-manifest-path", pods, "--objects-path", pods + "/."}, pods: true, found: "among"},
		"objects without": {args: []string{"--objects-path", apart}, found: "apart"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := program.Parse(append(tc.args, "--root-dir", dir))
			require.NoError(t, err)
			manifests, source := files(s, func(string, error) {}, logr.Discard())
			assert.Equal(t, tc.pods, manifests != nil)
			if tc.found == "" {
				assert.Nil(t, source)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			done := make(chan error, 2)
			ran := 1
			if manifests != nil {
				ran++
				mux, err := podconfig.New(podconfig.Options{NodeName: "node", Sources: []podconfig.Source{manifests}})
				require.NoError(t, err)
				go func() { done <- mux.Run(ctx) }()
			}
			go func() { done <- source.Watch(ctx, func([]objects.Ref) {}) }()
			for _, name := range []string{"among", "apart"} {
				_, err := source.Secret(ctx, "default", name)
				assert.Equal(t, name == tc.found, err == nil, "%s: %v", name, err)
			}
			cancel()
			for range ran {
				require.NoError(t, <-done)
			}
		})
	}
}

// Static pods get the UIDs of the kubelet that is given, or else of that which is installed.
func TestStaticPodUIDs(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"+
		"spec: {containers: [{name: c, image: i}]}\n")
	pods := []string{"--pod-manifest-path", dir, "--container-runtime-endpoint", "unix:///run/c.sock"}
	t.Setenv("PATH", empty)
	version := func(args ...string) string {
		s, err := program.Parse(args)
		require.NoError(t, err)
		return staticPodUIDs(t.Context(), s, logr.Discard())
	}
	assert.Empty(t, version(pods...), "none is installed")
	assert.Equal(t, "1.36", version(append(pods, "--static-pod-uids", "1.36")...))
	installed := func(script string) {
		require.NoError(t, os.WriteFile(filepath.Join(empty, "kubelet"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	installed(`[ "$*" = --version ] && echo Kubernetes v1.36.3`)
	assert.Equal(t, "1.36.3", version(pods...))
	assert.Equal(t, "1.35", version(append(pods, "--static-pod-uids", "1.35")...))
	assert.Empty(t, version(pods[:2]...), "a kubelet cannot take over the embedded runtime")
	assert.Empty(t, version(pods[2:]...), "no static pods")
	installed(`echo minikubelet v0.1.0 go1.26`)
	assert.Empty(t, version(pods...), "another agent under this name")
	installed(`echo Kubernetes v1.36.3; exit 1`)
	assert.Empty(t, version(pods...))
	_, err := program.Parse([]string{"--static-pod-uids", "latest"})
	assert.ErrorContains(t, err, `--static-pod-uids "latest"`)

	uid := func(version string) (uid types.UID) {
		s, err := program.Parse(append(pods, "--static-pod-uids", version))
		require.NoError(t, err)
		source, _ := files(s, func(string, error) {}, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		sink := podconfigfake.NewSink("node", func(pods []*v1.Pod) {
			uid = pods[0].UID
			cancel()
		})
		_ = source.Run(ctx, sink)
		return uid
	}
	assert.NotEqual(t, uid("1.36"), uid("1.37"))
}

func TestCheckpointDir(t *testing.T) {
	s, err := program.Parse([]string{"--root-dir", "/r"})
	require.NoError(t, err)
	assert.Equal(t, "/r/podcheckpoint", s.CheckpointDir)
	s, err = program.Parse([]string{"--checkpoint-dir", ""})
	require.NoError(t, err)
	store, err := checkpointStore(s, logr.Discard())
	require.NoError(t, err)
	assert.Nil(t, store)
	s, err = program.Parse([]string{"--checkpoint-key-file", "/nowhere"})
	require.NoError(t, err)
	_, err = checkpointStore(s, logr.Discard())
	assert.ErrorContains(t, err, "reading the key of the checkpoint")
}
