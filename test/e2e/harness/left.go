package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LeftOf returns an error while something of the pod is left on the machine: a directory of the agent, a
// mount or a cgroup. Container logs stay for a while.
func (a *Agent) LeftOf(c *Cluster, uid string) error {
	if _, err := os.Stat(filepath.Join(a.Root, "pods", uid)); !os.IsNotExist(err) {
		return fmt.Errorf("the directory of pod %s is left (%v)", uid, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, uid) {
			return fmt.Errorf("a mount of pod %s is left: %s", uid, line)
		}
	}
	roots, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", c.CgroupRoot()))
	for _, root := range append(roots, filepath.Join("/sys/fs/cgroup", c.CgroupRoot())) {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && strings.Contains(path, uid) {
				return fmt.Errorf("a cgroup of pod %s is left: %s", uid, path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AnyOf returns the lines of the agent's log that have one of the texts.
func (a *Agent) AnyOf(texts ...string) (lines []string, err error) {
	data, err := os.ReadFile(a.LogPath())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		for _, text := range texts {
			if strings.Contains(line, text) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines, nil
}
