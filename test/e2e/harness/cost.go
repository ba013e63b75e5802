package harness

import (
	"bufio"
	"fmt"
	"os"
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
