package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// cgroupControllers are the controllers of version 1 that containers use.
var cgroupControllers = [...]string{"cpu", "cpuacct", "memory", "pids"}

// cgroupRoot decides where the cgroups of pods and containers are: in that of the sandbox if its client
// has given one, otherwise each pod has one below the root, and each container in that.
type cgroupRoot struct {
	mounts map[string]supervise.CgroupMount
	// root is the cgroup of [Options].CgroupRoot, and root2 its directory of version 2 if the option is not set.
	root, root2 string
	// owner is the beginning of the names of the cgroups of this directory's pods: nothing else says whose they
	// are when the directory is gone.
	owner string
	// lock is the lock file of the server.
	lock string
	off  bool
}

func findCgroups(opts *Options) *cgroupRoot {
	mounts, err := supervise.CgroupMounts()
	owner := sha256.Sum256([]byte(opts.Dir))
	r := &cgroupRoot{mounts: mounts, root: opts.CgroupRoot, owner: hex.EncodeToString(owner[:6]) + "-",
		lock: filepath.Join(opts.Dir, supervise.LockFile), off: opts.NoCgroups || err != nil}
	if r.root == "" {
		r.root = defaultRoot
		if !r.off {
			r.root2 = delegated(mounts[""], supervise.OwnCgroup(""), os.Geteuid() == 0)
		}
	}
	return r
}

// dir returns the directory of the parent of cgroups in the hierarchy of a controller. It
// is "" if the hierarchy is not mounted.
func (r *cgroupRoot) dir(controller, parent string) string {
	mount, ok := r.mounts[controller]
	if !ok {
		return ""
	}
	switch {
	case parent != "":
		return mount.Path(filepath.Join("/", parent))
	case controller == "" && r.root2 != "":
		return r.root2
	case filepath.IsAbs(r.root):
		return mount.Path(r.root)
	}
	own := mount.Path(supervise.OwnCgroup(controller))
	if own == "" {
		return ""
	}
	return filepath.Join(own, r.root)
}

// mountsOf returns the hierarchies of version 1 in which the cgroup is.
func (r *cgroupRoot) mountsOf(c supervise.Cgroup) map[string]supervise.CgroupMount {
	mounts := make(map[string]supervise.CgroupMount, len(c.V1))
	for controller := range c.V1 {
		mounts[controller] = r.mounts[controller]
	}
	return mounts
}

// of returns the cgroups with the name, without making them.
func (r *cgroupRoot) of(parent, name string) supervise.Cgroup {
	var c supervise.Cgroup
	if r.off || strings.HasSuffix(parent, ".slice") { // a slice of systemd, in which only systemd makes cgroups
		return c
	}
	for _, controller := range cgroupControllers {
		if dir := r.dir(controller, parent); dir != "" {
			if c.V1 == nil {
				c.V1 = map[string]string{}
			}
			c.V1[controller] = filepath.Join(dir, name)
		}
	}
	if dir := r.dir("", parent); dir != "" {
		c.V2 = filepath.Join(dir, name)
	}
	return c
}

// within returns the cgroups with the name in those of a pod, without making them.
func within(pod supervise.Cgroup, name string) supervise.Cgroup {
	var c supervise.Cgroup
	for controller, dir := range pod.V1 {
		if c.V1 == nil {
			c.V1 = map[string]string{}
		}
		c.V1[controller] = filepath.Join(dir, name)
	}
	if pod.V2 != "" {
		c.V2 = filepath.Join(pod.V2, name)
	}
	return c
}

// ofPod returns the cgroups of a pod, without making them.
func (r *cgroupRoot) ofPod(sandbox string) supervise.Cgroup { return r.of("", r.owner+sandbox) }

// makeCgroups makes cgroups, in each hierarchy where that is possible, and returns these.
func makeCgroups(c supervise.Cgroup) supervise.Cgroup {
	var made supervise.Cgroup
	for controller, dir := range c.V1 {
		if makeCgroup(dir) {
			if made.V1 == nil {
				made.V1 = map[string]string{}
			}
			made.V1[controller] = dir
		}
	}
	if c.V2 != "" && makeCgroup2(c.V2) {
		made.V2 = c.V2
	}
	return made
}

// makeTries is how often a cgroup is made: another server may remove the one above, which is empty.
const makeTries = 3

// makeCgroup2 is makeCgroup for version 2. It enables the controllers above.
func makeCgroup2(dir string) bool {
	up := filepath.Dir(dir)
	for range makeTries {
		if os.MkdirAll(up, 0o755) != nil {
			continue
		}
		enableControllers(filepath.Dir(up))
		enableControllers(up)
		if err := os.Mkdir(dir, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			return makeCgroup(dir)
		}
	}
	return false
}

// enableControllers enables the controllers for the cgroups in a cgroup of version 2, as far as they
// exist. It does not in a cgroup with processes: the kernel would refuse memory, and with CPU or pids
// alone it would accept no process in the cgroups below (cgroups(7), "Threaded").
func enableControllers(dir string) {
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil && len(procs) > 0 {
		// the root of the hierarchy has no type
		return
	}
	for _, controller := range []string{"+cpu", "+cpuset", "+memory", "+pids"} {
		_ = enable(dir, controller) // each by itself, as one may be missing
	}
}

func enable(dir, controller string) error {
	// not made in a directory that is no cgroup
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.subtree_control"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(controller)
	return errors.Join(err, f.Close())
}

// makeCgroup makes a cgroup and reports whether processes can be added to it.
func makeCgroup(dir string) bool {
	for tries := 1; os.MkdirAll(dir, 0o755) != nil; tries++ {
		if tries == makeTries {
			return false
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		_ = os.Remove(dir)
		return false
	}
	_ = f.Close()
	return true
}

// errNoCgroup means that there is no writable file for a limit.
var errNoCgroup = errors.New("no cgroup for it can be written")

// write writes the settings of a limit. Those of one version are enough.
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

// writeVersion writes the settings of version 1, or those of version 2.
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

// writeSetting writes a file of a cgroup, which must exist. Its errors do not contain the
// path, so that the same error of several containers is logged once.
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

// shortfall is a limit that is not enforced, with the reason.
type shortfall struct {
	limit
	err error
}

// enforce writes limits into the cgroups of a container and returns those that are not
// enforced. A limit that fails is written once more at the end: in version 1, the order of
// the limits of memory and of memory with swap depends on whether they grow.
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
