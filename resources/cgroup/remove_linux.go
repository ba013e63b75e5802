package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hierarchies returns the mount points of the hierarchies: with cgroup v2 there is one, and
// with v1 one for each controller, below mount.
func hierarchies(mount string) ([]string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return []string{mount}, nil
	}
	entries, err := os.ReadDir(mount)
	var dirs []string
	for _, e := range entries {
		if e.IsDir() { // not the links, such as cpu to cpu,cpuacct
			dirs = append(dirs, filepath.Join(mount, e.Name()))
		}
	}
	return dirs, ignore(err)
}

// eachClass calls f with the directory of each class in each hierarchy, as far as it exists.
// The names in f cannot lead out of it.
func eachClass(mount string, root []string, f func(class *os.Root) error) error {
	hierarchies, err := hierarchies(mount)
	errs := []error{err}
	for _, h := range hierarchies {
		for _, class := range classes() {
			dir := path.Join(append(append([]string{}, root...), nodeCgroup, class)...)
			errs = append(errs, within(h, dir, f))
		}
	}
	return errors.Join(errs...)
}

func within(hierarchy, dir string, f func(*os.Root) error) error {
	top, err := os.OpenRoot(hierarchy)
	if err != nil {
		return ignore(err)
	}
	defer func() { _ = top.Close() }()
	class, err := top.OpenRoot(dir)
	if err != nil {
		return ignore(err)
	}
	defer func() { _ = class.Close() }()
	return f(class)
}

// ignore returns nil for what does not exist, is in use, or may not be changed by this process.
func ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) ||
		errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// children returns the names of the cgroups in a cgroup.
func children(dir *os.Root, name string) ([]string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, ignore(err)
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(-1)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, ignore(err)
}

func list(mount string, root []string) ([]types.UID, error) {
	seen := map[types.UID]bool{}
	var uids []types.UID
	err := eachClass(mount, root, func(class *os.Root) error {
		names, err := children(class, ".")
		for _, name := range names {
			text, ok := strings.CutPrefix(name, podPrefix)
			uid := types.UID(text)
			if ok && runtime.IsFileName(uid) && !seen[uid] {
				seen[uid] = true
				uids = append(uids, uid)
			}
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("looking for cgroups of pods: %w", err)
	}
	return uids, err
}

func remove(mount string, root []string, uid types.UID) error {
	return eachClass(mount, root, func(class *os.Root) error {
		pod := podPrefix + string(uid)
		info, err := class.Lstat(pod)
		if err != nil {
			return ignore(err)
		}
		if !info.IsDir() {
			return nil
		}
		containers, err := children(class, pod)
		if err != nil {
			return err
		}
		for _, c := range containers {
			if err := ignore(class.Remove(path.Join(pod, c))); err != nil {
				return err
			}
		}
		return ignore(class.Remove(pod))
	})
}
