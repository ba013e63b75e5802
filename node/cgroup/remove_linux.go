package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
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

// class is the directory of a class in one hierarchy.
type class struct {
	dir           *os.File
	cgroup        string // its name
	before, after string // around the UIDs in the names of the cgroups of pods
}

// eachClass calls f with the directory of each class in each hierarchy, as far as it exists.
func eachClass(mount string, root []string, driver Driver, f func(class) error) error {
	hierarchies, err := hierarchies(mount)
	errs := []error{err}
	for _, h := range hierarchies {
		for _, name := range classes() {
			c := class{cgroup: driver.path(classCgroup(root, name))}
			c.before, c.after = driver.podName(root, name)
			errs = append(errs, within(h, strings.TrimPrefix(c.cgroup, "/"), func(dir *os.File) error {
				c.dir = dir
				return f(c)
			}))
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

// inClass calls f with the directory of each class in each hierarchy, and the names of the cgroups of pods in it.
func inClass(mount string, root []string, driver Driver, f func(c class, pods map[types.UID]string) error) error {
	return eachClass(mount, root, driver, func(c class) error {
		names, err := c.dir.Readdirnames(-1) // ReadDir looks at each entry
		pods := map[types.UID]string{}
		for _, name := range names {
			if uid := driver.uidOf(name, c.before, c.after); uid != "" {
				pods[uid] = name
			}
		}
		return errors.Join(ignore(err), f(c, pods))
	})
}

// errStays means that a cgroup is there after its removal.
var errStays = errors.New("a process is in it, or this agent may not remove it")

func list(mount string, root []string, driver Driver) ([]types.UID, error) {
	var uids set
	err := inClass(mount, root, driver, func(c class, pods map[types.UID]string) error {
		for uid, name := range pods {
			if isDir(int(c.dir.Fd()), name) {
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

func remove(mount string, root []string, driver Driver, uid types.UID) error {
	if driver == Systemd {
		_, err := removeGone(mount, root, driver, func(other types.UID) bool { return other == uid })
		return err
	}
	return eachClass(mount, root, driver, func(c class) error {
		if err := removeTree(int(c.dir.Fd()), c.before+string(uid)+c.after); !errors.Is(err, unix.ENOTDIR) {
			// else not a cgroup
			return ignore(err)
		}
		return nil
	})
}

func removeGone(mount string, root []string, driver Driver, gone func(types.UID) bool) (map[types.UID]error, error) {
	found := map[types.UID]error{}
	err := inClass(mount, root, driver, func(c class, pods map[types.UID]string) error {
		var errs []error
		for uid, name := range pods {
			if !gone(uid) {
				continue
			}
			var err error
			if driver == Systemd {
				if err = stopSlice(c, name); err == nil {
					err = removeTree(int(c.dir.Fd()), name) // what is left of it in this hierarchy
				}
			} else {
				err = removeTree(int(c.dir.Fd()), name)
			}
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

// removeAbove removes the cgroups of classes and that of all pods, if they are empty. The order is that of what is in
// what.
func removeAbove(mount string, root []string, driver Driver) error {
	hierarchies, err := hierarchies(mount)
	errs := []error{err}
	for _, h := range hierarchies {
		for _, name := range slices.Backward(classes()) {
			cgroup := driver.path(classCgroup(root, name))
			errs = append(errs, within(h, path.Join(".", strings.TrimPrefix(path.Dir(cgroup), "/")),
				func(dir *os.File) error {
					if driver == Systemd {
						if busy, err := hasAny(filepath.Join(h, cgroup)); busy || err != nil {
							return ignore(err)
						}
						if err := stopUnit(cgroup); err != nil {
							return err
						}
					}
					return ignore(rmdir(int(dir.Fd()), path.Base(cgroup)))
				}))
		}
	}
	return errors.Join(errs...)
}

// hasAny reports whether a cgroup or a process is in the cgroup.
func hasAny(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(entries, os.DirEntry.IsDir) {
		return true, nil
	}
	return hasProcesses(dir)
}

// stopSlice stops the slice of a pod, unless a process is in it: systemd would kill it.
func stopSlice(c class, name string) error {
	dir := filepath.Join(c.dir.Name(), name)
	busy, err := hasProcesses(dir)
	if err != nil {
		return err
	}
	if busy {
		return unix.EBUSY
	}
	return stopUnit(path.Join(c.cgroup, name))
}

// hasProcesses reports whether a process is in the cgroup or below it.
func hasProcesses(dir string) (bool, error) {
	if data, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil { // cgroup v2
		return strings.Contains(string(data), "populated 1"), nil
	}
	busy := false
	err := filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		procs, err := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		if len(procs) > 0 {
			busy = true
			return fs.SkipAll
		}
		return err
	})
	return busy, err
}

// removeTree removes the cgroup of a pod in the directory of a class, and those of its containers
// if there are any. Links are not followed, and are not removed.
func removeTree(class int, pod string) error {
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
