package e2e

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestImageGC fills a small image store with pulls. A collection removes nothing below the
// high threshold; at it, it removes the least recently used images down to the low one, and
// pods go on.
func TestImageGC(t *testing.T) {
	const (
		storeBytes = 400 << 20
		imageBytes = 10 << 20 // random, so it takes that much packed, and once more unpacked
		high, low  = 60, 40
		images     = "127.0.0.1:5001"
	)
	c := NewClusterWith(t, ClusterOptions{Down: true})
	store := filepath.Join(c.Dir, "root")
	require.NoError(t, os.Mkdir(store, 0o755))
	if err := unix.Mount("tmpfs", store, "tmpfs", 0, fmt.Sprintf("size=%d", storeBytes)); err != nil {
		Skip(t, "needs a small file system: %v", err)
	}
	c.Start(t)
	usage := func() int {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(store, &st))
		return 100 - int(st.Bavail*100/st.Blocks)
	}

	// The images that nobody uses are in a registry of their own.
	serveRegistry(t, c, images)
	transport := &http.Transport{DialContext: c.Net.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	pull := func(n int) string {
		ref, err := name.ParseReference(fmt.Sprintf("%s/spare:%d", images, n), name.Insecure)
		require.NoError(t, err)
		image, err := random.Image(imageBytes, 1)
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, image, remote.WithTransport(transport)))
		require.NoError(t, c.Pull(ref.String()))
		return ref.String()
	}

	c.Preload(t, "pause:1", "busybox:1")
	a := c.StartAgent(t, AgentOptions{Config: map[string]any{
		"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low, "imageMinimumGCAge": "1s",
	}})
	command := func(args ...string) string {
		out, err := exec.Command(MinikubeletBinary(t), append(args, "--root-dir", a.Root)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	web := MakePod("web", Main(Sh("main", Forever)))
	web.Spec.Containers[0].Image = c.Registry.Image("busybox:1")
	a.Put(t, web)
	a.Await(t, web, time.Minute, Running)
	before := c.Newest(t, FullName(web), "main").Id

	var pulled []string
	for usage() < high-6 {
		pulled = append(pulled, pull(len(pulled)))
		command("images") // which notes when it has seen the image first
	}
	time.Sleep(1100 * time.Millisecond) // until all are old enough
	assert.Contains(t, command("gc"), "No image was removed", "the usage is %d %%", usage())
	assert.Contains(t, command("gc", "--dry-run"), "No image would be removed")

	for usage() < high {
		pulled = append(pulled, pull(len(pulled)))
		command("images")
	}
	time.Sleep(1100 * time.Millisecond)
	full := usage()
	table := command("images")
	assert.Contains(t, table, "pinned")
	assert.Contains(t, table, "used by running container main of pod default/"+FullName(web))
	assert.Contains(t, command("gc", "--dry-run"), "space: usage has reached 60%")
	assert.Equal(t, full, usage(), "that has changed nothing")

	removed := command("gc")
	after := usage()
	assert.LessOrEqual(t, after, low)
	assert.Greater(t, after, low-2*100*imageBytes/storeBytes-1, "no image more than needed")
	var want strings.Builder
	for _, image := range pulled[:strings.Count(removed, "removed ")] {
		fmt.Fprintln(&want, image)
	}
	for _, image := range pulled {
		assert.Equal(t, strings.Contains(want.String(), image+"\n"), strings.Contains(removed, "removed "+image+" "),
			"the oldest go first: %s", removed)
	}
	t.Logf("%d images, usage %d %%; removed %d, usage %d %%", len(pulled), full, strings.Count(removed, "removed "),
		after)

	// Pods go on, and start.
	assert.Equal(t, before, c.Newest(t, FullName(web), "main").Id)
	assert.Equal(t, cri.ContainerState_CONTAINER_RUNNING, c.Newest(t, FullName(web), "main").State)
	second := MakePod("second", Main(Sh("main", Forever)))
	second.Spec.Containers[0].Image = c.Registry.Image("busybox:2")
	a.Put(t, second)
	a.Await(t, second, time.Minute, Running)

	// All at once.
	assert.NotContains(t, command("gc", "--all"), "busybox")
	table = command("images")
	assert.NotContains(t, table, "spare")
	assert.Contains(t, table, c.Registry.Image("pause:1"))
	a.Await(t, web, time.Second, Running)
}

// serveRegistry serves an empty registry in the network of the cluster until the test has ended.
func serveRegistry(t *testing.T, c *Cluster, address string) {
	t.Helper()
	listener, err := c.Net.Listen(address)
	require.NoError(t, err)
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
}
