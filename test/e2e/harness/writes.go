package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Writes are what a process has written in a time.
type Writes struct {
	// Syncs is the number of calls that wait for a disk, also by what the process has run.
	Syncs int
	// Bytes sent to disks, see write_bytes in proc_pid_io(5). Those of other processes are left out.
	Bytes int64
}

// CountWrites counts what the agent writes until end is called.
func (a *Agent) CountWrites(t testing.TB) (end func() Writes) { return countWrites(t, a.process) }

// CountWrites counts what containerd writes until end is called.
func (c *Cluster) CountWrites(t testing.TB) (end func() Writes) { return countWrites(t, c.containerd) }

func countWrites(t testing.TB, p *process) (end func() Writes) {
	t.Helper()
	Need(t, "perf")
	pid, out := strconv.Itoa(p.cmd.Process.Pid), filepath.Join(t.TempDir(), "syncs")
	command, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, answer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"stat", "-x", ";", "-o", out, "-p", pid, "--delay=-1", "--control=fd:3,4"}
	for _, call := range []string{"fsync", "fdatasync", "sync_file_range", "syncfs", "msync"} {
		args = append(args, "-e", "syscalls:sys_enter_"+call)
	}
	perf := exec.Command("perf", args...)
	perf.ExtraFiles = []*os.File{command, answer} // its descriptors 3 and 4
	perf.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = perf.Start()
	command.Close()
	answer.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, err = commands.WriteString("enable\n")
	if _, err2 := answers.Read(make([]byte, 8)); err != nil || err2 != nil {
		t.Fatalf("perf does not count: %v", errors.Join(err, err2))
	}
	before := writtenBytes(t, pid)
	return func() Writes {
		t.Helper()
		written := Writes{Bytes: writtenBytes(t, pid) - before}
		if err := perf.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = perf.Wait() // interrupted
		commands.Close()
		answers.Close()
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if count, _, ok := strings.Cut(line, ";"); ok && count != "<not counted>" {
				n, err := strconv.Atoi(count)
				if err != nil {
					t.Fatalf("perf: %s", line)
				}
				written.Syncs += n
			}
		}
		return written
	}
}

func writtenBytes(t testing.TB, pid string) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/io")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), "\nwrite_bytes: ")
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatalf("/proc/%s/io: %v", pid, err)
	}
	return n
}
