package eviction

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupDir returns the directory of a cgroup that has the files of a controller of version 1, or all of version 2. legacy
// reports version 1.
func cgroupDir(mount, controller, path string) (dir string, legacy bool, err error) {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return filepath.Join(mount, path), false, nil
	}
	dir = filepath.Join(mount, controller, path)
	if _, err := os.Stat(dir); err != nil {
		return "", true, err
	}
	return dir, true, nil
}

// number reads a file with one number. "max", and what version 1 has in its place, is the largest one.
func number(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	s := strings.TrimSpace(string(text))
	if s == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n >= unlimited {
		n = math.MaxInt64
	}
	return n, err
}

// unlimited is about what version 1 of cgroups has in place of no limit: the largest number of pages.
const unlimited = math.MaxInt64 >> 1

// memoryOf returns the limit and the working set of a cgroup: what it uses without inactive files.
func memoryOf(mount, path string) (limit, used int64, err error) {
	dir, legacy, err := cgroupDir(mount, "memory", path)
	if err != nil {
		return 0, 0, err
	}
	names := [3]string{"memory.max", "memory.current", "inactive_file"}
	if legacy {
		names = [3]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	}
	if limit, err = number(filepath.Join(dir, names[0])); errors.Is(err, fs.ErrNotExist) {
		limit, err = math.MaxInt64, nil // the root
	}
	if err != nil {
		return 0, 0, err
	}
	if used, err = number(filepath.Join(dir, names[1])); err != nil {
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
	dir, _, err := cgroupDir(mount, "pids", path)
	if err != nil {
		return 0, err
	}
	return number(filepath.Join(dir, "pids.current"))
}

// containersOf returns the cgroups below that of a pod, by the ID of the container in their name, as in "<id>",
// "cri-containerd-<id>.scope" or "crio-<id>.scope".
func containersOf(mount, path string, ids []string) map[string]string {
	dir, _, err := cgroupDir(mount, "memory", path)
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
		name := strings.TrimSuffix(e.Name(), ".scope")
		for _, id := range ids {
			if name == id || strings.HasSuffix(name, "-"+id) {
				out[id] = filepath.Join(path, e.Name())
			}
		}
	}
	return out
}
