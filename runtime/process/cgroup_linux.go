package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

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
				for _, controller := range []string{"+cpu", "+memory", "+pids"} {
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

// limit applies resources to cgroups. The errors say what could not be, one for each kind.
func limit(c supervise.Cgroup, r *criv1.LinuxContainerResources, pids int64) []error {
	var errs []error
	set := func(kind string, wanted bool, settings ...setting) {
		if !wanted {
			return
		}
		err := fmt.Errorf("%s is not enforced: no cgroup for it can be written", kind)
		for _, s := range settings {
			if s.dir == "" {
				continue
			}
			if e := os.WriteFile(filepath.Join(s.dir, s.file), []byte(s.value), 0); e == nil {
				err = nil
			} else if !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, fs.ErrPermission) && err != nil {
				err = fmt.Errorf("%s is not enforced: %w", kind, e)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	cpu, memory := c.V1["cpu"], c.V1["memory"]
	period := r.GetCpuPeriod()
	if period <= 0 {
		period = 100_000 // microseconds, the kernel's
	}
	quota, quotaV2 := r.GetCpuQuota(), "max"
	if quota > 0 {
		quotaV2 = strconv.FormatInt(quota, 10)
	}
	shares := r.GetCpuShares()
	if shares > 0 {
		// Without them a container gets no less than what the host's other processes get, so
		// that is no reason for a warning.
		_ = cpuShares(cpu, c.V2, shares)
	}
	if quota != 0 && cpu != "" {
		_ = os.WriteFile(filepath.Join(cpu, "cpu.cfs_period_us"), fmt.Append(nil, period), 0)
	}
	set("the CPU limit", quota > 0,
		setting{cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)},
		setting{c.V2, "cpu.max", fmt.Sprintf("%s %d", quotaV2, period)})
	mem := r.GetMemoryLimitInBytes()
	set("the memory limit", mem > 0,
		setting{memory, "memory.limit_in_bytes", strconv.FormatInt(mem, 10)},
		setting{c.V2, "memory.max", strconv.FormatInt(mem, 10)})
	if n, ok := r.GetUnified()["pids.max"]; ok {
		if v, err := strconv.ParseInt(n, 10, 64); err == nil {
			pids = v
		}
	}
	set("the limit of processes", pids > 0,
		setting{c.V1["pids"], "pids.max", strconv.FormatInt(pids, 10)},
		setting{c.V2, "pids.max", strconv.FormatInt(pids, 10)})
	for key, value := range r.GetUnified() {
		if key != "pids.max" && filepath.IsLocal(key) && !strings.Contains(key, "/") {
			set("the setting "+key, true, setting{c.V2, key, value})
		}
	}
	set("the set of CPUs", r.GetCpusetCpus() != "", setting{c.V2, "cpuset.cpus", r.GetCpusetCpus()})
	set("the set of memory nodes", r.GetCpusetMems() != "", setting{c.V2, "cpuset.mems", r.GetCpusetMems()})
	return errs
}

// setting is one file of a cgroup; dir may be "".
type setting struct{ dir, file, value string }

// cpuShares sets the weight; the two scales are [2, 262144] and [1, 10000], mapped as
// runc maps them (KEP-2254).
func cpuShares(v1, v2 string, shares int64) error {
	var errs []error
	shares = min(max(shares, 2), 262144)
	if v1 != "" {
		errs = append(errs, os.WriteFile(filepath.Join(v1, "cpu.shares"), fmt.Append(nil, shares), 0))
	}
	if v2 != "" {
		errs = append(errs, os.WriteFile(filepath.Join(v2, "cpu.weight"), fmt.Append(nil, 1+(shares-2)*9999/262142), 0))
	}
	return errors.Join(errs...)
}
