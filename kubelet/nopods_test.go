package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent that is given no pods stops all that run. That is refused, unless it is intended.
func TestAnAgentWithoutPodsRefusesToStopThoseThatRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	b.stop()
	file := filepath.Join(b.root, "none.yaml")
	write(t, file, header+"podLogsDir: "+b.root+"/logs\nhealthzPort: 0\ncgroupRoot: /minikubelet-test\n")
	start := func(ctx context.Context, args ...string) error {
		return runKubelet(ctx,
			slices.Concat(ownDirs(b.root), []string{"--config", file, "--root-dir", b.root, "--hostname-override=n",
				"--show=none", "--container-runtime-endpoint", b.endpoint}, args))
	}
	for _, args := range [][]string{nil, {"--runonce"}} {
		err := start(t.Context(), args...)
		require.ErrorContains(t, err, "1 pod runs on "+b.endpoint+" and would be stopped: default/web-n")
		require.ErrorContains(t, err, "--pod-manifest-path")
		require.ErrorContains(t, err, "--allow-no-pods")
		assert.Len(t, b.rt.Running(fake.Target{}), 1)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, "--allow-no-pods") }()
	require.Eventually(t, func() bool {
		pods, err := b.rt.ListPods(t.Context())
		return err == nil && !slices.ContainsFunc(pods, (*runtime.Pod).Running)
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)

	// Nothing runs that could be stopped.
	ctx, cancel = context.WithCancel(t.Context())
	go func() { ended <- start(ctx) }()
	b.await("No pods found.", "pods")
	cancel()
	require.NoError(t, <-ended)

	// Nothing is known of what runs.
	b.endpoint = "unix://" + b.root + "/other.sock"
	require.ErrorContains(t, start(t.Context()), "--allow-no-pods")
}

// A manifest that cannot be used has no pod that could be listed. It is listed itself, and so is a
// path that does not exist.
func TestBrokenManifestsAreListed(t *testing.T) {
	b := newBench(t)
	b.put("web", "i")
	write(t, filepath.Join(b.manifests, "broken.yaml"), "kind: [")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	b.await("Manifests that cannot be used: "+filepath.Join(b.manifests, "broken.yaml")+": yaml:", "pods")
	b.await("Not running: its manifest cannot be used: yaml:", "describe", "broken")
	b.await(filepath.Join(b.manifests, "broken.yaml")+" cannot be used: yaml:", "history", "broken")
	require.NoError(t, os.Remove(filepath.Join(b.manifests, "broken.yaml")))
	require.Eventually(t, func() bool { return !strings.Contains(b.command("pods"), "cannot be used") }, time.Minute,
		20*time.Millisecond)
	// In the place of a kubelet a pod with an unknown field runs.
	path := filepath.Join(b.manifests, "lenient.yaml")
	write(t, path, "apiVersion: v1\nkind: Pod\nmetadata: {name: lenient}\nspek: {}\nspec: {containers: [{name: a, image: i}]}\n")
	b.await("lenient-n 1/1 Running", "pods")
	b.await("Manifests of which something is ignored: "+path+`: unknown field "spek"`, "pods")
	b.await("ManifestWarning", "events")
	write(t, path, "apiVersion: v1\nkind: Pod\nmetadata: {name: gated}\nspec: {containers: [{name: a, image: i}], "+
		"volumes: [{name: v, emptyDir: {mode: 0700}}]}\n")
	b.await("spec.volumes[0].emptyDir.mode has no effect without the feature gate EmptyDirVolumeMode", "events")
	b.stop()
	b.manifests = filepath.Join(b.root, "manifest")
	b.start()
	b.await("Manifests that cannot be used: "+b.manifests+": the path of the manifests (--pod-manifest-path, "+
		"staticPodPath) does not exist", "pods")
}
