package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"
)

// libraryMount is where github.com/opencontainers/cgroups expects cgroups.
const libraryMount = "/sys/fs/cgroup"

// kernel is the cgroups of this machine. What it finds out about the machine it finds out once.
type kernel struct {
	mount string
	// found has the facts, found out at the first call.
	found func() machineFacts
}

type machineFacts struct {
	v2 bool
	// paths are the directories of the root cgroup by controller; with cgroup v2 one, "".
	paths       map[string]string
	controllers map[string]bool
	hugePages   []string
	online      string
	// missing are controllers that the kernel does not have, or that this process may not change.
	missing []string
	err     error // why this process cannot make cgroups
}

// kernelTree returns the cgroups below the mount point.
func kernelTree(mount string) tree {
	k := &kernel{mount: mount}
	k.found = sync.OnceValue(k.facts)
	return k
}

func (k *kernel) facts() machineFacts {
	f := machineFacts{controllers: map[string]bool{}}
	var st unix.Statfs_t
	err := unix.Statfs(k.mount, &st)
	switch {
	case err != nil:
		f.err = fmt.Errorf("no cgroups at %s: %w", k.mount, err)
	case k.mount != libraryMount:
		f.err = fmt.Errorf("cgroups at %s: limits are set below %s only", k.mount, libraryMount)
	case os.Geteuid() != 0:
		f.err = errors.New("this process does not run as root")
	}
	if f.err != nil {
		return f
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		f.v2 = true
		f.paths = map[string]string{"": k.mount}
		data, err := os.ReadFile(filepath.Join(k.mount, "cgroup.controllers"))
		if err != nil {
			f.err = err
		}
		for name := range strings.FieldsSeq(string(data)) {
			f.controllers[name] = true
		}
		f.err = errors.Join(f.err, unix.Access(k.mount, unix.W_OK))
	} else {
		m, err := fs.NewManager(&cgroups.Cgroup{Path: "/", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
		if err != nil {
			f.err = err
			return f
		}
		f.paths = m.GetPaths()
		for name, dir := range f.paths {
			if err := unix.Access(dir, unix.W_OK); err != nil {
				delete(f.paths, name)
				continue
			}
			f.controllers[name] = true
		}
	}
	needed := []string{"cpu", "cpuset", "memory", "pids"}
	for _, name := range needed {
		if !f.controllers[name] {
			f.missing = append(f.missing, name)
		}
	}
	if f.err == nil && len(f.missing) == len(needed) {
		f.err = errors.New("the kernel has none of the controllers " + strings.Join(needed, ", ") +
			", or this process may not change them")
	}
	if f.controllers["hugetlb"] {
		f.hugePages = cgroups.HugePageSizes()
	}
	if data, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil && f.controllers["cpuset"] {
		f.online = strings.TrimSpace(string(data))
	}
	return f
}

func (k *kernel) usable(driver Driver) error {
	if err := k.found().err; err != nil {
		return err
	}
	if driver == Systemd && !systemd.IsRunningSystemd() {
		return errors.New("the runtime uses systemd for cgroups, and systemd does not run")
	}
	return nil
}

func (k *kernel) missing() []string   { return k.found().missing }
func (k *kernel) unified() bool       { return k.found().err == nil && k.found().v2 }
func (k *kernel) pageSizes() []string { return k.found().hugePages }
func (k *kernel) cpus() string        { return k.found().online }

// dirs returns the directories of the cgroup by controller.
func (k *kernel) dirs(cgroup string) map[string]string {
	dirs := maps.Clone(k.found().paths)
	for name, dir := range dirs {
		dirs[name] = filepath.Join(dir, cgroup)
	}
	return dirs
}

// exists looks at one directory, so that it costs one system call.
func (k *kernel) exists(cgroup string) bool {
	paths := k.found().paths
	for _, name := range []string{"", "memory", "cpu", "pids"} {
		dir, ok := paths[name]
		if name == "" && !k.found().v2 || !ok {
			continue // "" is that of a hybrid machine
		}
		return isDir(unix.AT_FDCWD, filepath.Join(dir, cgroup))
	}
	return false
}

// manager returns the library's manager of a cgroup.
func (k *kernel) manager(driver Driver, cgroup string, r *cgroups.Resources) (cgroups.Manager, error) {
	config := &cgroups.Cgroup{Resources: r}
	if driver == Systemd {
		config.Systemd, config.Name, config.Parent = true, path.Base(cgroup), path.Base(path.Dir(cgroup))
		if config.Parent == "/" {
			config.Parent = "-" + slice
		}
		if k.found().v2 {
			return systemd.NewUnifiedManager(config, filepath.Join(k.mount, cgroup))
		}
		return systemd.NewLegacyManager(config, nil)
	}
	config.Path = cgroup
	if k.found().v2 {
		return fs2.NewManager(config, filepath.Join(k.mount, cgroup))
	}
	return fs.NewManager(config, k.dirs(cgroup))
}

func (k *kernel) make(driver Driver, cgroup string, r Resources) error {
	if err := k.usable(driver); err != nil {
		return err
	}
	m, err := k.manager(driver, cgroup, &cgroups.Resources{SkipDevices: true})
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil { // -1 is no process: only the cgroup is made
		return err
	}
	return k.set(driver, cgroup, r)
}

func (k *kernel) set(driver Driver, cgroup string, r Resources) error {
	res := k.translate(r)
	m, err := k.manager(driver, cgroup, &cgroups.Resources{SkipDevices: true})
	if err != nil {
		return err
	}
	err = m.Set(res)
	if err == nil || driver == Systemd {
		return err
	}
	// The library stops at the first controller that fails. The others are set.
	for _, one := range single(res) {
		_ = m.Set(one)
	}
	return err
}

// single returns the settings of each controller alone.
func single(r *cgroups.Resources) []*cgroups.Resources {
	base := func() *cgroups.Resources { return &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true} }
	cpu, memory, pids := base(), base(), base()
	cpu.CpuShares, cpu.CpuWeight, cpu.CpuQuota, cpu.CpuPeriod = r.CpuShares, r.CpuWeight, r.CpuQuota, r.CpuPeriod
	memory.Memory, memory.MemoryCheckBeforeUpdate = r.Memory, r.MemoryCheckBeforeUpdate
	pids.PidsLimit = r.PidsLimit
	list := []*cgroups.Resources{cpu, memory, pids}
	for file, value := range r.Unified {
		u := base()
		u.Unified = map[string]string{file: value}
		list = append(list, u)
	}
	return list
}

// translate returns the settings as the library takes them, as far as the kernel has the controllers.
func (k *kernel) translate(r Resources) *cgroups.Resources {
	f := k.found()
	out := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true, MemoryCheckBeforeUpdate: true}
	if f.controllers["cpu"] {
		if k.found().v2 {
			if r.CPUShares != 0 {
				out.CpuWeight = Weight(r.CPUShares)
			}
		} else {
			out.CpuShares = r.CPUShares
		}
		out.CpuQuota, out.CpuPeriod = r.CPUQuota, r.CPUPeriod
	}
	if f.controllers["memory"] {
		out.Memory = r.MemoryMax
		files := map[string]*int64{"memory.min": r.MemoryMin, "memory.low": r.MemoryLow}
		if r.MemoryHigh != 0 {
			files["memory.high"] = &r.MemoryHigh
		}
		for file, n := range files {
			if n == nil || !k.found().v2 {
				continue
			}
			if out.Unified == nil {
				out.Unified = map[string]string{}
			}
			out.Unified[file] = strconv.FormatInt(*n, 10)
			if *n == None {
				out.Unified[file] = "max"
			}
		}
	}
	if f.controllers["pids"] && r.PidsMax != 0 {
		out.PidsLimit = &r.PidsMax
	}
	if f.controllers["cpuset"] {
		out.CpusetCpus = r.CPUs
	}
	if r.HugePages != nil {
		for _, size := range f.hugePages {
			out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size,
				Limit: uint64(r.HugePages[size])})
		}
	}
	return out
}

func (k *kernel) read(cgroup string, set Resources) (Resources, error) {
	f, dirs, out := k.found(), k.dirs(cgroup), Resources{}
	var errs []error
	read := func(controller, file string) string {
		if f.v2 {
			controller = ""
		}
		data, err := os.ReadFile(filepath.Join(dirs[controller], file))
		errs = append(errs, err)
		return strings.TrimSpace(string(data))
	}
	number := func(text string) int64 {
		if text == "max" {
			return None
		}
		n, err := strconv.ParseInt(text, 10, 64)
		errs = append(errs, err)
		return n
	}
	switch {
	case !f.controllers["cpu"]: // not limited by the kernel; nobody changes it
		out.CPUShares, out.CPUQuota, out.CPUPeriod = set.CPUShares, set.CPUQuota, set.CPUPeriod
	case f.v2:
		out.CPUShares = sharesOf(uint64(max(0, number(read("cpu", "cpu.weight")))), set.CPUShares)
		quota, period, _ := strings.Cut(read("cpu", "cpu.max"), " ")
		out.CPUQuota, out.CPUPeriod = number(quota), uint64(max(0, number(period)))
	default:
		out.CPUShares = uint64(max(0, number(read("cpu", "cpu.shares"))))
		out.CPUQuota, out.CPUPeriod = number(read("cpu", "cpu.cfs_quota_us")),
			uint64(max(0, number(read("cpu", "cpu.cfs_period_us"))))
	}
	switch {
	case !f.controllers["memory"]:
		out.MemoryMax, out.MemoryHigh = set.MemoryMax, set.MemoryHigh
	case f.v2:
		out.MemoryMax, out.MemoryHigh = number(read("memory", "memory.max")), number(read("memory", "memory.high"))
	default:
		out.MemoryMax = number(read("memory", "memory.limit_in_bytes"))
	}
	if out.CPUPeriod == set.CPUPeriod && out.CPUQuota == systemdQuota(set.CPUQuota, set.CPUPeriod) {
		out.CPUQuota = set.CPUQuota
	}
	page := int64(os.Getpagesize())
	switch {
	case out.MemoryMax >= math.MaxInt64/page*page: // no limit in cgroup v1
		out.MemoryMax = None
	case set.MemoryMax > 0 && out.MemoryMax == set.MemoryMax/page*page:
		out.MemoryMax = set.MemoryMax
	}
	if err := errors.Join(errs...); err != nil {
		return Resources{}, fmt.Errorf("reading cgroup %s: %w", cgroup, err)
	}
	return out.complete(), nil
}

// systemdQuota returns the quota that systemd makes of one: it has whole hundredths of a CPU, rounded up.
func systemdQuota(quota int64, period uint64) int64 {
	const second, step = 1_000_000, 10_000
	if quota <= 0 || period == 0 {
		return quota
	}
	perSecond := (quota*second/int64(period) + step - 1) / step * step
	return perSecond * int64(period) / second
}

func (k *kernel) memoryUsage(cgroup string) (int64, error) {
	file, dir := "memory.current", k.dirs(cgroup)[""]
	if !k.found().v2 {
		file, dir = "memory.usage_in_bytes", k.dirs(cgroup)["memory"]
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

func (k *kernel) moveSelf(cgroup string) error {
	if data, err := os.ReadFile("/proc/self/cgroup"); err == nil && inCgroup(string(data), path.Join("/", cgroup),
		k.found().v2) {
		return nil
	}
	return k.move(cgroup, []int{os.Getpid()})
}

// inCgroup reports whether a process with the file /proc/<pid>/cgroup is in the cgroup. With cgroup v1 the hierarchies
// of CPU and memory decide, as with kubelet.
func inCgroup(file, cgroup string, v2 bool) bool {
	found := false
	for line := range strings.Lines(file) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controllers := strings.Split(parts[1], ",")
		if v2 && parts[1] == "" || !v2 && (slices.Contains(controllers, "cpu") ||
			slices.Contains(controllers, "memory")) {
			if parts[2] != cgroup {
				return false
			}
			found = true
		}
	}
	return found
}

func (k *kernel) moveRoot(cgroup string) error {
	root := k.found().paths[""]
	if !k.found().v2 {
		root = k.found().paths["devices"]
	}
	pids, err := cgroups.GetPids(root)
	if err != nil {
		return err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return pid == 1 || errors.Is(err, os.ErrNotExist) // a thread of the kernel, or ended
	})
	if len(pids) == 0 {
		return nil
	}
	return k.move(cgroup, pids)
}

// move moves processes to a cgroup of the driver cgroupfs, as kubelet does with either driver.
func (k *kernel) move(cgroup string, pids []int) error {
	m, err := k.manager(Cgroupfs, path.Join("/", cgroup), &cgroups.Resources{SkipDevices: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if err := m.Apply(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// stopUnit stops a slice of systemd. It may not have processes.
func stopUnit(cgroup string) error {
	if !systemd.IsRunningSystemd() {
		return nil
	}
	k := kernelTree(libraryMount).(*kernel)
	m, err := k.manager(Systemd, cgroup, &cgroups.Resources{SkipDevices: true})
	if err != nil {
		return err
	}
	return m.Destroy()
}
