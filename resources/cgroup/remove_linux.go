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

	"github.com/kubeletkit/kubeletkit/podspec"
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
func eachClass(mount string, root []string, f func(class *os.File) error) error {
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

// within calls f with a directory of the hierarchy. No link leads out of the hierarchy.
func within(hierarchy, dir string, f func(*os.File) error) error {
	top, err := os.OpenRoot(hierarchy)
	if err != nil {
		return ignore(err)
	}
	defer func() { _ = top.Close() }()
	class, err := top.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
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

// inClass calls f with the directory of each class in each hierarchy, and the pods in it, as far as
// they exist.
func inClass(mount string, root []string, f func(class int, pods []types.UID) error) error {
	return eachClass(mount, root, func(dir *os.File) error {
		names, err := dir.Readdirnames(-1) // ReadDir looks at each entry
		var pods []types.UID
		for _, name := range names {
			uid, ok := strings.CutPrefix(name, podPrefix)
			if ok && podspec.IsFileName(types.UID(uid)) {
				pods = append(pods, types.UID(uid))
			}
		}
		return errors.Join(ignore(err), f(int(dir.Fd()), pods))
	})
}

// errStays means that a cgroup is there after its removal.
var errStays = errors.New("a process is in it, or this agent may not remove it")

func list(mount string, root []string) ([]types.UID, error) {
	var uids set
	err := inClass(mount, root, func(class int, pods []types.UID) error {
		for _, uid := range pods {
			if isDir(class, podPrefix+string(uid)) {
				uids.add(uid)
			}
		}
		return nil
	})
	return uids.list, looking(err)
}

func looking(err error) error {
	if err != nil {
		return fmt.Errorf("looking for cgroups of pods: %w", err)
	}
	return nil
}

// set is a set of pods in the order in which they were added.
type set struct {
	has  map[types.UID]bool
	list []types.UID
}

func (s *set) add(uid types.UID) {
	if !s.has[uid] {
		if s.has == nil {
			s.has = map[types.UID]bool{}
		}
		s.has[uid] = true
		s.list = append(s.list, uid)
	}
}

func isDir(parent int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func remove(mount string, root []string, uid types.UID) error {
	return eachClass(mount, root, func(dir *os.File) error {
		if err := removePod(int(dir.Fd()), uid); !errors.Is(err, unix.ENOTDIR) { // else not a cgroup
			return ignore(err)
		}
		return nil
	})
}

func removeGone(mount string, root []string, gone func(types.UID) bool) (map[types.UID]error, error) {
	found := map[types.UID]error{}
	err := inClass(mount, root, func(class int, pods []types.UID) error {
		var errs []error
		for _, uid := range pods {
			if !gone(uid) {
				continue
			}
			err := removePod(class, uid)
			if errors.Is(err, unix.ENOTDIR) {
				continue // not a cgroup
			}
			switch {
			case err == nil || errors.Is(err, unix.ENOENT):
				err = found[uid]
			case ignore(err) == nil:
				err = errStays
			default:
				errs = append(errs, fmt.Errorf("pod %s: removing its cgroup: %w", uid, err))
			}
			found[uid] = err
		}
		return errors.Join(errs...)
	})
	return found, looking(err)
}

// removePod removes the cgroup of a pod in the directory of a class, and those of its containers
// if there are any. Links are not followed, and are not removed.
func removePod(class int, uid types.UID) error {
	pod := podPrefix + string(uid)
	err := rmdir(class, pod)
	if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	fd, err := unix.Openat(class, pod, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), pod)
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if isDir(fd, name) {
			if err := ignore(rmdir(fd, name)); err != nil {
				return err
			}
		}
	}
	return rmdir(class, pod)
}

func rmdir(parent int, name string) error { return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR) }
