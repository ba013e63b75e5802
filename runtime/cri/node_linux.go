package cri

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/machine"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

// findNode collects the facts of the machine that configurations of containers depend
// on. A feature whose file cannot be read counts as absent.
func findNode(opts *Options) *translate.Node {
	n := &translate.Node{
		CgroupV2:            isCgroupV2(),
		KillProcessesSingly: opts.KillProcessesSingly,
		NoCPUQuota:          opts.NoCPUQuota,
		CPUPeriod:           opts.CPUPeriod,
		SELinux:             machine.HasSELinux(),
		SeccompProfileRoot:  opts.SeccompProfileRoot,
		SeccompDefault:      opts.SeccompDefault,
		PodSysctls:          opts.PodSysctls,
		HugepageSizes:       hugepageSizes(),
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		n.MemoryCapacity = int64(info.Totalram) * int64(info.Unit)
	}
	n.SwapControl = hasSwapControl(n.CgroupV2)
	n.MaskedPaths, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	return n
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isCgroupV2() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// hasSwapControl looks at the cgroup of this process. In v2 the root has no limits, so those below it are looked at if
// this process is in it.
func hasSwapControl(v2 bool) bool {
	if !v2 {
		return exists("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			if own == "/" {
				below, _ := filepath.Glob("/sys/fs/cgroup/*/memory.swap.max")
				return len(below) > 0
			}
			return exists(filepath.Join("/sys/fs/cgroup", own, "memory.swap.max"))
		}
	}
	return false
}

// hugepageSizes returns the sizes of the kernel's huge pages, in the notation of cgroup
// files.
func hugepageSizes() []string {
	entries, err := os.ReadDir("/sys/kernel/mm/hugepages")
	if err != nil {
		return nil
	}
	var sizes []string
	for _, e := range entries {
		kb, ok := strings.CutPrefix(e.Name(), "hugepages-")
		n, err := strconv.ParseUint(strings.TrimSuffix(kb, "kB"), 10, 64)
		if ok && err == nil {
			sizes = append(sizes, hugepageSize(n))
		}
	}
	return sizes
}

func hugepageSize(kb uint64) string {
	switch {
	case kb >= 1<<20 && kb%(1<<20) == 0:
		return strconv.FormatUint(kb>>20, 10) + "GB"
	case kb >= 1<<10 && kb%(1<<10) == 0:
		return strconv.FormatUint(kb>>10, 10) + "MB"
	default:
		return strconv.FormatUint(kb, 10) + "KB"
	}
}
