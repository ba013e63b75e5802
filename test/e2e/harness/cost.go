package harness

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cost is what a process has used so far.
type Cost struct {
	// CPU time, user and system.
	CPU time.Duration
	// RSS is the resident memory in bytes.
	RSS int64
}

// Cost returns what the agent's process has used.
func (a *Agent) Cost(t testing.TB) Cost { return costOf(t, a.process) }

// Cost returns what containerd has used, its shims and containers left out.
func (c *Cluster) Cost(t testing.TB) Cost { return costOf(t, c.containerd) }

// ThreadCPU returns the CPU time of the agent's threads to the nanosecond, where Cost counts ticks
// of 10 ms. Threads that have ended are left out; those of a Go program that is idle do not end.
func (a *Agent) ThreadCPU(t testing.TB) time.Duration {
	cpu, _ := threads(t, a.process)
	return cpu
}

// WakeUps returns how often a thread of the agent has got a CPU.
func (a *Agent) WakeUps(t testing.TB) int64 {
	_, slices := threads(t, a.process)
	return slices
}

// ThreadCPU returns the same of containerd, its shims and containers left out.
func (c *Cluster) ThreadCPU(t testing.TB) time.Duration {
	cpu, _ := threads(t, c.containerd)
	return cpu
}

func threads(t testing.TB, p *process) (cpu time.Duration, slices int64) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", p.cmd.Process.Pid, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// Documentation/scheduler/sched-stats.rst: time on a CPU, time in a run queue, time slices.
		var ran, waited, n int64
		if _, err := fmt.Sscan(string(data), &ran, &waited, &n); err != nil {
			t.Fatalf("unexpected %s: %q", file, data)
		}
		cpu, slices = cpu+time.Duration(ran), slices+n
	}
	return cpu, slices
}

// CPU returns the CPU time of containerd with its shims and all that these have run: runc,
// network plugins. Containers are left out. It returns 0 where control groups cannot be made.
func (c *Cluster) CPU(t testing.TB) time.Duration {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.cgroup, "cpuacct.usage"))
	if err != nil {
		return 0
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

// account moves containerd into a control group of its own, for CPU.
func (c *Cluster) account() {
	dir := filepath.Join("/sys/fs/cgroup/cpuacct", filepath.Base(c.Dir))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return
	}
	pid := strconv.Itoa(c.containerd.cmd.Process.Pid)
	if os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0) == nil {
		c.cgroup = dir
	}
}

// SystemCPU returns the CPU time that all processes of the machine and its kernel have used.
func SystemCPU(t testing.TB) time.Duration {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, in ticks of 10 ms.
	fields := strings.Fields(line)
	if len(fields) < 8 {
		t.Fatalf("unexpected /proc/stat: %q", line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func costOf(t testing.TB, p *process) Cost {
	t.Helper()
	cost, err := readCost(p.cmd.Process.Pid)
	if err != nil {
		t.Fatalf("what process %d has used: %v", p.cmd.Process.Pid, err)
	}
	return cost
}

// readCost reads /proc. proc_pid_stat(5): the fields after the name, which is in
// parentheses and may hold anything, begin with the third; the times are the 14th
// and 15th, in ticks of 10 ms.
func readCost(pid int) (Cost, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Cost{}, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return Cost{}, fmt.Errorf("unexpected stat %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Cost{}, err
		}
		ticks += n
	}
	cost := Cost{CPU: time.Duration(ticks) * 10 * time.Millisecond}
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Cost{}, err
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			cost.RSS = kb << 10
			return cost, err
		}
	}
	return cost, fmt.Errorf("process %d has no VmRSS", pid)
}
