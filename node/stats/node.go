package stats

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Machine is what the machine has.
type Machine struct {
	// Cores is the number of logical processors that are online, 0 if unknown.
	Cores int
	// Memory and Swap are their sizes in bytes.
	Memory, Swap uint64
	// ID is that of /etc/machine-id, SystemUUID that of the hardware, which only root can read,
	// and BootID that of the boot. Each is empty if it cannot be read.
	ID, SystemUUID, BootID string
}

// machine reads the figures of the machine.
type machine struct {
	proc    string // /proc
	cgroups cgroups
}

// file returns the content of a file, whose name is relative to /proc; "" if it cannot be read.
func (m machine) file(name string) string {
	data, err := os.ReadFile(filepath.Join(m.proc, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// read returns what the machine has and uses. What cannot be read is missing.
//
// CPU time is that of the root cgroup, or where there is none that of /proc/stat. Memory is
// that of /proc/meminfo: in use is what is not free, and the working set is that without
// inactive files, as kubelet has it with cgroup v2.
func (m machine) read(now time.Time) (Machine, statsv1alpha1.NodeStats) {
	at := metav1.NewTime(now)
	var node statsv1alpha1.NodeStats
	stat := m.file("stat")
	st, err := parseProcStat(stat)
	node.StartTime = metav1.NewTime(st.boot)
	root, ok := m.cgroups.read("")
	switch {
	case ok && root.CPU != nil:
		node.CPU = root.cpu(now)
	case err == nil:
		used := uint64(st.cpu)
		node.CPU = &statsv1alpha1.CPUStats{Time: at, UsageCoreNanoSeconds: &used}
	}
	if node.CPU != nil {
		node.CPU.PSI = parsePressure(m.file("pressure/cpu"))
	}
	mem := parseKeyed(m.file("meminfo"))
	vm := parseKeyed(m.file("vmstat"))
	if total, ok := mem["MemTotal"]; ok {
		used := total - min(total, mem["MemFree"])
		working := used - min(used, mem["Inactive(file)"])
		available := total - working
		node.Memory = &statsv1alpha1.MemoryStats{
			Time: at, AvailableBytes: &available, UsageBytes: &used, WorkingSetBytes: &working,
			RSSBytes:   keyed(mem, "AnonPages"),
			PageFaults: keyed(vm, "pgfault"), MajorPageFaults: keyed(vm, "pgmajfault"),
			PSI: parsePressure(m.file("pressure/memory")),
		}
	}
	if total, ok := mem["SwapTotal"]; ok {
		free := min(total, mem["SwapFree"])
		used := total - free
		node.Swap = &statsv1alpha1.SwapStats{Time: at, SwapAvailableBytes: &free, SwapUsageBytes: &used}
	}
	if psi := parsePressure(m.file("pressure/io")); psi != nil {
		node.IO = &statsv1alpha1.IOStats{Time: at, PSI: psi}
	}
	node.Network = m.network(at)
	node.Rlimit = m.tasks(at)
	return Machine{
		Cores: cores(stat), Memory: mem["MemTotal"], Swap: mem["SwapTotal"],
		ID: line(m.file("../etc/machine-id")), SystemUUID: line(m.file("../sys/class/dmi/id/product_uuid")),
		BootID: line(m.file("sys/kernel/random/boot_id")),
	}, node
}

// line returns the first line of a file, if it can be an ID.
func line(text string) string {
	id, _, _ := strings.Cut(text, "\n")
	id = strings.TrimSpace(id)
	if len(id) > 64 || !utf8.ValidString(id) {
		return ""
	}
	return id
}

// cores counts the lines of processors in /proc/stat.
func cores(stat string) int {
	n := 0
	for line := range strings.Lines(stat) {
		if rest, ok := strings.CutPrefix(line, "cpu"); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			n++
		}
	}
	return n
}

// network returns the interfaces of the machine without those of pods, as cAdvisor does. The
// default one is that of the default route, and else eth0.
func (m machine) network(at metav1.Time) *statsv1alpha1.NetworkStats {
	all := slices.DeleteFunc(parseNetDev(m.file("net/dev")), func(i statsv1alpha1.InterfaceStats) bool {
		for _, prefix := range []string{"veth", "docker", "nerdctl"} {
			if strings.HasPrefix(i.Name, prefix) {
				return true
			}
		}
		return i.Name == "lo"
	})
	if len(all) == 0 {
		return nil
	}
	out := &statsv1alpha1.NetworkStats{Time: at, Interfaces: all}
	name := parseDefaultRoute(m.file("net/route"))
	if name == "" {
		name = "eth0"
	}
	for _, i := range all {
		if i.Name == name {
			out.InterfaceStats = i
		}
	}
	return out
}

// tasks returns the number of tasks and their limit.
func (m machine) tasks(at metav1.Time) *statsv1alpha1.RlimitStats {
	limit, err := parseNumber(m.file("sys/kernel/pid_max"))
	if threads, terr := parseNumber(m.file("sys/kernel/threads-max")); err == nil && terr == nil {
		limit = min(limit, threads)
	}
	n, ok := parseTasks(m.file("loadavg"))
	if err != nil || !ok || limit > maxAmount {
		return nil
	}
	most := int64(limit)
	return &statsv1alpha1.RlimitStats{Time: at, MaxPID: &most, NumOfRunningProcesses: &n}
}
