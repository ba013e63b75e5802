package harness

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// CgroupRoot is the cgroup that has the pods of the cluster's agents, as agents are
// configured with it.
func (c *Cluster) CgroupRoot() string { return "/" + filepath.Base(c.Dir) + "-pods" }

// removeCgroups removes what is left below CgroupRoot.
func (c *Cluster) removeCgroups() {
	roots, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", c.CgroupRoot()))
	for _, root := range append(roots, filepath.Join("/sys/fs/cgroup", c.CgroupRoot())) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = os.Remove(dir)
		}
	}
}
