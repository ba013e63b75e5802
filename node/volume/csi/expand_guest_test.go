//go:build linux

package csi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
)

// The file system of a published volume becomes larger, with a file open in it. A machine that is a container may not
// have it resized.
func TestGuestExpand(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
	command(t, "modprobe", "loop")
	r := newRig(t, csidriver.Options{FileSystem: "ext4"})
	pv := r.add("data")
	require.NoError(t, r.driver.AddVolume("handle-data", 32<<20))
	pod := r.pod("web", "data")
	path := r.mustSetUp(pod)["data"].HostPath
	size := func() int64 {
		var s unix.Statfs_t
		require.NoError(t, unix.Statfs(path, &s))
		return int64(s.Blocks) * s.Bsize
	}
	assert.Less(t, size(), int64(32<<20))
	file, err := os.Create(filepath.Join(path, "file"))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, r.driver.AddVolume("handle-data", 128<<20)) // the controller
	larger := pv.DeepCopy()
	larger.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("128Mi")}
	require.NoError(t, r.plugin.Expand(t.Context(), volume.PersistentRequest{Pod: pod, Volume: larger,
		Place: volume.PlaceOf(r.podDir(pod), csi.Name, "data")}))
	assert.Greater(t, size(), int64(96<<20))
	_, err = file.Write(make([]byte, 64<<20))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	r.mustRemove(pod)
	r.isClean()
}
