// Package cgroupfs reads the files of cgroups, and waits for what the kernel signals about them. Both versions of
// cgroups are mounted where systemd mounts them: version 2 in one directory, version 1 in a directory for each
// controller below it.
package cgroupfs

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mount is where cgroups are mounted.
const Mount = "/sys/fs/cgroup"

// Dir returns the directory of a cgroup that has the files of a controller of version 1, or all of version 2. legacy
// reports version 1.
func Dir(mount, controller, path string) (dir string, legacy bool, err error) {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return filepath.Join(mount, path), false, nil
	}
	dir = filepath.Join(mount, controller, path)
	if _, err := os.Stat(dir); err != nil {
		return "", true, err
	}
	return dir, true, nil
}

// PathOf returns the cgroup of a controller in a file /proc/<pid>/cgroup: that of version 1, or else that of version 2.
// It is "" if there is none, or one that this process cannot name, since it is outside of its own namespace of cgroups.
func PathOf(file, controller string) string {
	unified := ""
	for line := range strings.Lines(file) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		path := strings.TrimSuffix(parts[2], " (deleted)")
		if strings.HasPrefix(path, "/..") {
			path = ""
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			unified = path
		case strings.Contains(","+parts[1]+",", ","+controller+","):
			return path
		}
	}
	return unified
}

// ContainerOf returns the ID in the name of a container's cgroup: "<id>", or "<runtime>-<id>.scope".
func ContainerOf(name string) string {
	scope, ok := strings.CutSuffix(name, ".scope")
	if !ok {
		return name
	}
	return scope[strings.LastIndexByte(scope, '-')+1:]
}

// Number reads a file with one number. "max", and what version 1 has in its place, is [math.MaxInt64].
func Number(file string) (int64, error) {
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

// maxCounts is the most that is read of a file of counts. The kernel writes less than 200 bytes.
const maxCounts = 4096

// Counts reads a file that has a name and a number in each line.
func Counts(file string) (map[string]uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxCounts))
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			out[name] = v
		}
	}
	return out, nil
}
