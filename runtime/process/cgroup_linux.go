package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// cgroupControllers are those of version 1 that containers are put in.
var cgroupControllers = [...]string{"cpu", "cpuacct", "memory", "pids"}

// cgroupRoot knows where cgroups for containers are made.
type cgroupRoot struct {
	mounts map[string]supervise.CgroupMount
	root   string
	off    bool
}

func findCgroups(opts *Options) *cgroupRoot {
	mounts, err := supervise.CgroupMounts()
	return &cgroupRoot{mounts: mounts, root: opts.CgroupRoot, off: opts.NoCgroups || err != nil}
}

// dir is where a container's cgroup is in the hierarchy of a controller; "" where
// that is not mounted.
func (r *cgroupRoot) dir(controller, parent, id string) string {
	mount, ok := r.mounts[controller]
	if !ok {
		return ""
	}
	switch {
	case parent != "":
		return filepath.Join(mount.Path(filepath.Join("/", parent)), id)
	case filepath.IsAbs(r.root):
		return filepath.Join(mount.Path(r.root), id)
	}
	own := mount.Path(supervise.OwnCgroup(controller))
	if own == "" {
		return ""
	}
	return filepath.Join(own, r.root, id)
}

// make makes a container's cgroups, wherever that is possible.
func (r *cgroupRoot) make(parent, id string) supervise.Cgroup {
	var c supervise.Cgroup
	if r.off || strings.HasSuffix(parent, ".slice") { // systemd's form, for which systemd would have to be asked
		return c
	}
	for _, controller := range cgroupControllers {
		if dir := r.dir(controller, parent, id); dir != "" && makeCgroup(dir) {
			if c.V1 == nil {
				c.V1 = map[string]string{}
			}
			c.V1[controller] = dir
		}
	}
	if dir := r.dir("", parent, id); dir != "" {
		// A container's own controllers are set one level above it, and so on up. Where the
		// server itself is in the cgroup above, the kernel lets none through.
		up := filepath.Dir(dir)
		if os.MkdirAll(up, 0o755) == nil {
			for _, d := range []string{filepath.Dir(up), up} {
				for _, controller := range []string{"+cpu", "+cpuset", "+memory", "+pids"} {
					_ = os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte(controller), 0)
				}
			}
			if makeCgroup(dir) {
				c.V2 = dir
			}
		}
	}
	return c
}

// makeCgroup makes one in which processes can be put.
func makeCgroup(dir string) bool {
	if os.MkdirAll(dir, 0o755) != nil {
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		_ = os.Remove(dir)
		return false
	}
	_ = f.Close()
	return true
}

// errNoCgroup says that there is no file in which a limit could be written.
var errNoCgroup = errors.New("no cgroup for it can be written")

// write writes a limit's settings of both versions, of which one is enough.
func (l limit) write(c supervise.Cgroup) error {
	v1, v2 := l.writeVersion(c, true), l.writeVersion(c, false)
	switch {
	case v1 == nil || v2 == nil:
		return nil
	case errors.Is(v1, errNoCgroup):
		return v2
	}
	return v1
}

// writeVersion writes the settings that are of version 1, or those that are not.
func (l limit) writeVersion(c supervise.Cgroup, v1 bool) error {
	err := errNoCgroup
	for _, s := range l.settings {
		if (s.controller != "") != v1 {
			continue
		}
		dir := c.V2
		if v1 {
			dir = c.V1[s.controller]
		}
		if dir == "" {
			return errNoCgroup
		}
		if err = writeSetting(filepath.Join(dir, s.file), s.value); err != nil {
			return err
		}
	}
	return err
}

// writeSetting writes a file of a cgroup, which must be there. Errors do not have its
// path in them, so those of all containers are one.
func writeSetting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return errNoCgroup
	}
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	var bare *fs.PathError
	if errors.As(err, &bare) {
		return fmt.Errorf("%s of %s to %s: %w", bare.Op, filepath.Base(path), value, bare.Err)
	}
	return err
}

// shortfall is a limit that is not enforced, and why.
type shortfall struct {
	limit
	err error
}

// enforce writes limits into the cgroups of a container, and returns what is missed of
// them. What fails is tried once more at the end: version 1 wants the limits of memory, and
// of memory with swap, in an order that depends on whether they grow.
func enforce(c supervise.Cgroup, limits []limit) []shortfall {
	again := slices.DeleteFunc(slices.Clone(limits), func(l limit) bool { return l.write(c) == nil })
	var missed []shortfall
	for _, l := range again {
		if err := l.write(c); err != nil && !(l.optional && errors.Is(err, errNoCgroup)) {
			missed = append(missed, shortfall{l, err})
		}
	}
	return missed
}
