package eviction

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// memoryOf returns the limit and the working set of a cgroup: what it uses without inactive files.
func memoryOf(mount, path string) (limit, used int64, err error) {
	dir, legacy, err := cgroupfs.Dir(mount, "memory", path)
	if err != nil {
		return 0, 0, err
	}
	names := [3]string{"memory.max", "memory.current", "inactive_file"}
	if legacy {
		names = [3]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	}
	if limit, err = cgroupfs.Number(filepath.Join(dir, names[0])); errors.Is(err, fs.ErrNotExist) {
		limit, err = math.MaxInt64, nil // the root
	}
	if err != nil {
		return 0, 0, err
	}
	if used, err = cgroupfs.Number(filepath.Join(dir, names[1])); err != nil {
		return 0, 0, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, 0, err
	}
	inactive, _ := keyed(string(stat), names[2])
	return limit, max(0, used-inactive), nil
}

// processesOf returns the number of tasks in a cgroup and those below it.
func processesOf(mount, path string) (int64, error) {
	dir, _, err := cgroupfs.Dir(mount, "pids", path)
	if err != nil {
		return 0, err
	}
	return cgroupfs.Number(filepath.Join(dir, "pids.current"))
}

// containersOf returns the cgroups below that of a pod, by the ID of the container in their name.
func containersOf(mount, path string, ids []string) map[string]string {
	dir, _, err := cgroupfs.Dir(mount, "memory", path)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if id := cgroupfs.ContainerOf(e.Name()); slices.Contains(ids, id) {
			out[id] = filepath.Join(path, e.Name())
		}
	}
	return out
}
