package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

// newTree makes directories as of cgroup v1, in two hierarchies.
func newTree(t *testing.T, root string, dirs ...string) (*cgroup.Pods, string) {
	t.Helper()
	mount := t.TempDir()
	for _, controller := range []string{"cpu,cpuacct", "memory"} {
		require.NoError(t, os.MkdirAll(filepath.Join(mount, controller, root, "kubepods"), 0o755))
		for _, dir := range dirs {
			require.NoError(t, os.MkdirAll(filepath.Join(mount, controller, root, dir), 0o755))
		}
	}
	require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(mount, "cpu")))
	pods, err := cgroup.New(cgroup.Options{Root: root, MountPoint: mount})
	require.NoError(t, err)
	return pods, mount
}

func TestRemove(t *testing.T) {
	for _, root := range []string{"/", "/kubelet"} {
		pods, mount := newTree(t, root, "kubepods/podg/c1", "kubepods/burstable/podb/c1", "kubepods/burstable/podb/c2",
			"kubepods/besteffort/pode",
			"kubepods/besteffort/other", "podoutside", "kubepods/burstable/podkeep/c")
		require.NoError(t, os.RemoveAll(filepath.Join(mount, "memory", root, "kubepods/podg"))) // in one hierarchy only
		uids, err := pods.Pods()
		require.NoError(t, err)
		assert.ElementsMatch(t, []types.UID{"g", "b", "e", "keep"}, uids)
		for _, uid := range []types.UID{"g", "b", "e", "none", "outside"} {
			require.NoError(t, pods.Remove(uid))
			require.NoError(t, pods.Remove(uid), "again")
		}
		uids, err = pods.Pods()
		require.NoError(t, err)
		assert.Equal(t, []types.UID{"keep"}, uids)
		for _, dir := range []string{"kubepods/besteffort/other", "kubepods/burstable", "podoutside",
			"kubepods/burstable/podkeep/c"} {
			assert.DirExists(t, filepath.Join(mount, "memory", root, dir))
		}
	}
}

// What is above pods goes with the last one.
func TestRemoveAbove(t *testing.T) {
	for _, root := range []string{"/", "/kubelet"} {
		pods, mount := newTree(t, root, "kubepods/burstable/podb", "kubepods/besteffort")
		require.NoError(t, pods.RemoveAbove())
		assert.NoDirExists(t, filepath.Join(mount, "memory", root, "kubepods/besteffort"))
		assert.DirExists(t, filepath.Join(mount, "memory", root, "kubepods/burstable/podb"))
		require.NoError(t, pods.Remove("b"))
		require.NoError(t, pods.RemoveAbove())
		require.NoError(t, pods.RemoveAbove(), "again")
		for _, controller := range []string{"cpu,cpuacct", "memory"} {
			assert.NoDirExists(t, filepath.Join(mount, controller, root, "kubepods"))
		}
	}
}

// One pass removes what Remove removes for each of the pods.
func TestRemoveGone(t *testing.T) {
	for _, root := range []string{"/", "/kubelet"} {
		pods, mount := newTree(t, root, "kubepods/podg/c1", "kubepods/burstable/podb/c1", "kubepods/burstable/podb/c2",
			"kubepods/besteffort/pode",
			"kubepods/besteffort/other", "podoutside", "kubepods/burstable/podkeep/c", "kubepods/burstable/podbusy/c")
		require.NoError(t, os.RemoveAll(filepath.Join(mount, "memory", root, "kubepods/podg")))
		require.NoError(t, os.Symlink("podkeep", filepath.Join(mount, "memory", root, "kubepods/burstable/podlink")))
		require.NoError(t,
			os.WriteFile(filepath.Join(mount, "memory", root, "kubepods/burstable/podbusy/c/cgroup.procs"), nil, 0o600))
		found, err := pods.RemoveGone(func(uid types.UID) bool { return uid != "keep" })
		require.NoError(t, err)
		require.ErrorContains(t, found["busy"], "a process is in it")
		delete(found, "busy")
		assert.Equal(t, map[types.UID]error{"g": nil, "b": nil, "e": nil}, found)
		uids, err := pods.Pods()
		require.NoError(t, err)
		assert.ElementsMatch(t, []types.UID{"keep", "busy"}, uids)
		for _, dir := range []string{"kubepods/besteffort/other", "kubepods/burstable", "podoutside",
			"kubepods/burstable/podkeep/c"} {
			assert.DirExists(t, filepath.Join(mount, "memory", root, dir))
		}
		_, err = os.Lstat(filepath.Join(mount, "memory", root, "kubepods/burstable/podlink"))
		require.NoError(t, err)
		assert.NoDirExists(t, filepath.Join(mount, "cpu,cpuacct", root, "kubepods/burstable/podbusy"),
			"the other hierarchies go on")
	}
}

// The kernel refuses to remove a cgroup with processes; a directory with a file stands for it.
func TestRemoveLeavesWhatIsInUse(t *testing.T) {
	pods, mount := newTree(t, "/", "kubepods/burstable/podb/c1")
	inUse := filepath.Join(mount, "memory", "kubepods/burstable/podb/c1")
	require.NoError(t, os.WriteFile(filepath.Join(inUse, "cgroup.procs"), nil, 0o600))
	require.NoError(t, pods.Remove("b"), "it is found again")
	assert.DirExists(t, inUse)
	assert.NoDirExists(t, filepath.Join(mount, "cpu", "kubepods/burstable/podb"), "the other hierarchies go on")
	uids, err := pods.Pods()
	require.NoError(t, err)
	assert.Equal(t, []types.UID{"b"}, uids)
}

func TestRemoveStaysBelowTheRoot(t *testing.T) {
	pods, mount := newTree(t, "/", "kubepods/burstable", "victim/c")
	for _, uid := range []types.UID{"/../../victim", "..", "", "../x"} {
		require.Error(t, pods.Remove(uid))
	}
	outside := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(outside, "c"), 0o755))
	burstable := filepath.Join(mount, "memory", "kubepods/burstable")
	require.NoError(t, os.Symlink(outside, filepath.Join(burstable, "podabs")))
	require.NoError(t, os.Symlink("../../victim", filepath.Join(burstable, "podrel")))
	require.NoError(t, os.Mkdir(filepath.Join(burstable, "pod"), 0o755)) // without a UID
	uids, err := pods.Pods()
	require.NoError(t, err)
	assert.Empty(t, uids)
	for _, uid := range []types.UID{"abs", "rel"} {
		require.NoError(t, pods.Remove(uid))
	}
	assert.DirExists(t, filepath.Join(outside, "c"))
	assert.DirExists(t, filepath.Join(mount, "memory", "victim/c"))

	// The class is a link out of the hierarchy.
	require.NoError(t, os.Mkdir(filepath.Join(outside, "podx"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(mount, "memory", "kubepods/besteffort")))
	_ = pods.Remove("x")
	assert.DirExists(t, filepath.Join(outside, "podx"))
}

func TestWithoutCgroups(t *testing.T) {
	pods, err := cgroup.New(cgroup.Options{MountPoint: filepath.Join(t.TempDir(), "none")})
	require.NoError(t, err)
	uids, err := pods.Pods()
	require.NoError(t, err)
	assert.Empty(t, uids)
	require.NoError(t, pods.Remove("a"))
}
