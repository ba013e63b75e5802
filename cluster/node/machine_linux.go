package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	process "github.com/kubeletkit/kubeletkit/internal/machine"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// readFacts reads what cAdvisor reads.
func readFacts(root string) v1.NodeSystemInfo {
	first := func(paths ...string) string {
		for _, path := range paths {
			if text := readText(root, path); text != "" {
				return text
			}
		}
		return ""
	}
	info := v1.NodeSystemInfo{
		MachineID: first("/etc/machine-id", "/var/lib/dbus/machine-id"),
		SystemUUID: first("/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id",
			"/proc/device-tree/vm,uuid", "/etc/machine-id"),
		BootID:        first("/proc/sys/kernel/random/boot_id"),
		KernelVersion: first("/proc/sys/kernel/osrelease"),
		OSImage:       osImage(readText(root, "/etc/os-release")),
	}
	if swap, ok := memInfo(root)["SwapTotal"]; ok && swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: ptr.To(swap)}
	}
	return info
}

// inUserNamespace reports whether this process is in another user namespace than the initial one.
func inUserNamespace(root string) *bool {
	return new(process.IsUserNamespace(readText(root, "/proc/self/uid_map")))
}

// readText returns the content of the file without spaces around it; "" if it cannot be read.
func readText(root, path string) string {
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.TrimRight(string(data), "\x00"))
}

// osImage returns the name of the system in an os-release file.
func osImage(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

// memInfo returns the sizes in /proc/meminfo, in bytes.
func memInfo(root string) map[string]int64 {
	data, err := os.ReadFile(filepath.Join(root, "/proc/meminfo"))
	if err != nil {
		return nil
	}
	sizes := map[string]int64{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		number, isSize := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil && isSize {
			sizes[name] = n * 1024
		}
	}
	return sizes
}

// coreCount returns the processors that are online, also those that this process may not use.
func coreCount(root string) int {
	total := 0
	for part := range strings.SplitSeq(readText(root, "/sys/devices/system/cpu/online"), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			return goruntime.NumCPU()
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil || b < a || b > 1<<20 {
				return goruntime.NumCPU()
			}
		}
		total += b - a + 1
	}
	return total
}

// readCapacity adds memory, huge pages and storage. The error joins what cannot be read.
func readCapacity(opts MachineOptions, capacity v1.ResourceList) error {
	var errs []error
	if total, ok := memInfo(opts.root)["MemTotal"]; ok {
		capacity[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	} else {
		errs = append(errs, errors.New("/proc/meminfo does not have the size of the memory"))
	}
	const pages = "/sys/kernel/mm/hugepages"
	entries, err := os.ReadDir(filepath.Join(opts.root, pages))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kb, err := strconv.ParseInt(strings.TrimSuffix(text, "kB"), 10, 64)
		if !ok || err != nil {
			continue
		}
		n, err := strconv.ParseInt(readText(opts.root, filepath.Join(pages, e.Name(), "nr_hugepages")), 10, 64)
		if err != nil {
			continue
		}
		size := resource.NewQuantity(kb*1024, resource.BinarySI)
		capacity[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(n*kb*1024,
			resource.BinarySI)
	}
	if opts.StorageDir != "" {
		size, err := safefile.DiskSizeAt(opts.StorageDir)
		if err != nil {
			errs = append(errs, fmt.Errorf("size of the file system of %s: %w", opts.StorageDir, err))
		} else {
			capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(size.Capacity), resource.BinarySI)
		}
	}
	return errors.Join(errs...)
}
