package supervise

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// enter moves the calling thread into the cgroups of version 1, that of memory only if withMemory is true. Its
// children start there. leave moves it back. The goroutine must be locked to the thread. mounts has the
// hierarchies.
func (c Cgroup) enter(mounts map[string]CgroupMount, withMemory bool) (leave func(), err error) {
	if len(c.V1) == 0 {
		return func() {}, nil
	}
	self := []byte("0") // the calling thread; with its number, the kernel would stop all forks of the machine for it
	own, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return func() {}, err
	}
	var back []string
	leave = func() {
		for _, dir := range back {
			_ = os.WriteFile(filepath.Join(dir, "tasks"), self, 0)
		}
	}
	for controller, dir := range c.V1 {
		mount := mounts[controller]
		// Other controllers may be in the hierarchy of memory.
		if !withMemory && c.V1["memory"] != "" && mount == mounts["memory"] {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "tasks"), self, 0); err != nil {
			leave()
			return func() {}, err
		}
		back = append(back, mount.Path(cgroupPath(own, controller)))
	}
	return leave, nil
}

// enterMemory moves a process into the cgroup of memory of version 1, if there is one.
func (c Cgroup) enterMemory(pid int) error {
	dir := c.V1["memory"]
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// open opens the directory of version 2. It returns nil if there is none.
func (c Cgroup) open() (*os.File, error) {
	if c.V2 == "" {
		return nil, nil
	}
	return os.Open(c.V2)
}

// stop kills the tree with cgroups of version 2, and keeps it from growing with those of
// version 1.
func (c Cgroup) stop() {
	if isCgroup(c.V2) {
		_ = os.WriteFile(filepath.Join(c.V2, "cgroup.kill"), []byte("1"), 0) // Linux 5.14
	}
	if dir := c.V1["pids"]; isCgroup(dir) {
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0)
	}
}

// Kill kills all processes in the cgroups and returns their number. It is for a container
// without a supervisor.
func (c Cgroup) Kill() int {
	c.stop()
	n := 0
	for _, p := range c.Processes() {
		if p.Kill(unix.SIGKILL) == nil {
			n++
		}
	}
	return n
}

// Foreign reports whether a process of another PID namespace is in the cgroups, without those in cgroups below them.
func (c Cgroup) Foreign() bool {
	for _, dir := range c.dirs() {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if slices.ContainsFunc(bytes.Fields(data), func(pid []byte) bool { return string(pid) == "0" }) {
			return true
		}
	}
	return false
}

// Processes returns the processes in the cgroups, without those in cgroups below them.
func (c Cgroup) Processes() []Process {
	var all []Process
	seen := map[int]bool{}
	for _, dir := range c.dirs() {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range bytes.Fields(data) {
			pid, err := strconv.Atoi(string(f))
			if err != nil || seen[pid] || pid == os.Getpid() {
				continue
			}
			seen[pid] = true
			if p, err := ProcessOf(pid); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// dirs returns the directories that are on a cgroup file system. Only the kernel makes files
// there; in another directory, anybody may have listed processes to be killed.
func (c Cgroup) dirs() []string {
	var all []string
	if isCgroup(c.V2) {
		all = append(all, c.V2)
	}
	for _, dir := range c.V1 {
		if isCgroup(dir) {
			all = append(all, dir)
		}
	}
	return all
}

func isCgroup(dir string) bool {
	var fs unix.Statfs_t
	return dir != "" && unix.Statfs(dir, &fs) == nil && (fs.Type == unix.CGROUP_SUPER_MAGIC ||
		fs.Type == unix.CGROUP2_SUPER_MAGIC)
}

// Remove removes the directories. Their processes must have ended. It tries for a tenth of
// a second, or only once if ctx has ended.
func (c Cgroup) Remove(ctx context.Context) error {
	var errs []error
	for _, dir := range c.dirs() {
		// The kernel may not have removed the last process yet.
		var err error
		for range 20 {
			if err = removeCgroup(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				err = nil
				break
			}
			if !flow.Sleep(ctx, 5*time.Millisecond) {
				break
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup with those that the container has made below it.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	return unix.Rmdir(dir)
}

// OOMKills returns the number of processes that the kernel has killed because of their
// memory.
func (c Cgroup) OOMKills() uint64 {
	if dir := c.V1["memory"]; dir != "" {
		return ReadKeyed(filepath.Join(dir, "memory.oom_control"), "oom_kill")
	}
	if c.V2 != "" {
		return ReadKeyed(filepath.Join(c.V2, "memory.events"), "oom_kill")
	}
	return 0
}

// ReadKeyed returns the number of the key in a file of lines "key number". It is 0 if there
// is none.
func ReadKeyed(path, key string) uint64 {
	data, _ := os.ReadFile(path)
	for line := range bytes.Lines(data) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if ok && string(name) == key {
			n, _ := strconv.ParseUint(string(value), 10, 64)
			return n
		}
	}
	return 0
}

// Path returns the directory of a cgroup of the hierarchy. It is "" if there is none.
func (m CgroupMount) Path(cgroup string) string {
	if m.Point == "" || cgroup == "" {
		return ""
	}
	rel, err := filepath.Rel(m.Root, cgroup)
	if err != nil || rel == ".." || len(rel) > 2 && rel[:3] == "../" {
		return m.Point // a cgroup namespace or a bind mount, which shows only our own cgroup
	}
	return filepath.Join(m.Point, rel)
}

// CgroupMounts returns the hierarchies by controller. That of version 2 has the key "".
func CgroupMounts() (map[string]CgroupMount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(data), nil
}

// parseMounts parses proc_pid_mountinfo(5).
func parseMounts(data []byte) map[string]CgroupMount {
	mounts := map[string]CgroupMount{}
	for line := range bytes.Lines(data) {
		left, right, ok := bytes.Cut(line, []byte(" - "))
		l, r := bytes.Fields(left), bytes.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		m := CgroupMount{Point: string(l[4]), Root: string(l[3])}
		switch string(r[0]) {
		case "cgroup2":
			mounts[""] = m
		case "cgroup":
			for option := range bytes.SplitSeq(r[2], []byte{','}) {
				mounts[string(option)] = m // also for "rw", which is not a controller
			}
		}
	}
	return mounts
}

// OwnCgroup returns the cgroup of this process in the hierarchy of a controller.
func OwnCgroup(controller string) string {
	data, _ := os.ReadFile("/proc/self/cgroup")
	return cgroupPath(data, controller)
}

// cgroupPath parses /proc/<pid>/cgroup (cgroups(7)).
func cgroupPath(data []byte, controller string) string {
	for line := range bytes.Lines(data) {
		parts := bytes.SplitN(bytes.TrimSuffix(line, []byte{'\n'}), []byte{':'}, 3)
		if len(parts) != 3 {
			continue
		}
		for name := range bytes.SplitSeq(parts[1], []byte{','}) {
			if string(name) == controller {
				return string(parts[2])
			}
		}
	}
	return ""
}
