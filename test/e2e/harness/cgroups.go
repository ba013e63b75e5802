package harness

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// CgroupRoot is the cgroup that has the pods of the cluster's agents, as agents are
// configured with it.
func (c *Cluster) CgroupRoot() string { return "/" + filepath.Base(c.Dir) + "-pods" }

// MakeCgroup makes [Cluster.CgroupRoot] in all hierarchies.
func (c *Cluster) MakeCgroup(t testing.TB) {
	t.Helper()
	roots := []string{"/sys/fs/cgroup"}
	if !exists("/sys/fs/cgroup/cgroup.controllers") {
		roots, _ = filepath.Glob("/sys/fs/cgroup/*")
	}
	for _, root := range roots {
		if st, err := os.Lstat(root); err != nil || !st.IsDir() {
			continue
		}
		if err := os.MkdirAll(root+c.CgroupRoot(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// RemoveAll removes all sandboxes with their containers, and the cgroups of their pods: pods that are
// started after it find none of an earlier pod with the same UID.
func (c *Cluster) RemoveAll() error {
	err := c.Client.RemoveAll()
	c.removeCgroups(false)
	return err
}

// removeCgroups removes what is left below CgroupRoot, and itself if root is set.
func (c *Cluster) removeCgroups(root bool) {
	roots, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", c.CgroupRoot()))
	for _, top := range append(roots, filepath.Join("/sys/fs/cgroup", c.CgroupRoot())) {
		RemoveCgroup(top, root)
	}
}

// RemoveCgroup removes the cgroups below top, and top itself if root is set, as far as they are empty.
func RemoveCgroup(top string, root bool) {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && (root || path != top) {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir)
	}
}
