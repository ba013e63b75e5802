package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessOf returns the process that has the pid now.
func ProcessOf(pid int) (Process, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: st.Start, Boot: BootID()}, nil
}

// Alive reports whether the process runs. It does not if it has ended and is not reaped
// yet.
func (p Process) Alive() bool {
	st, err := ReadStat(p.PID)
	return err == nil && p.is(st) && st.State != 'Z' && st.State != 'X'
}

func (p Process) is(st Stat) bool { return p.PID > 0 && st.Start == p.Start && BootID() == p.Boot }

// Kill sends a signal to the process, and never to another one with its pid.
func (p Process) Kill(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) && p.Alive() {
			return unix.Kill(p.PID, sig)
		}
		return err
	}
	defer unix.Close(fd)
	// The descriptor refers to the process that had the pid when it was opened.
	if !p.Alive() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// signalGroup sends a signal to a process group of which the process is a member. It sends
// nothing if the process has ended and was reaped, or has left the group: the group may be
// another one with this number then. The kernel makes sure of that itself if it is Linux 6.9
// or later and the process leads the group. Otherwise the group is checked right before.
func (p Process) signalGroup(group int, sig unix.Signal) error {
	fd, openErr := unix.PidfdOpen(p.PID, 0)
	switch {
	case openErr == nil:
		defer unix.Close(fd)
	case !errors.Is(openErr, unix.ENOSYS):
		return openErr
	}
	// A process that is not reaped yet is still in its group.
	if st, err := ReadStat(p.PID); err != nil || !p.is(st) || st.PGID != group {
		return unix.ESRCH
	}
	if openErr == nil && group == p.PID {
		if err := unix.PidfdSendSignal(fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return unix.Kill(-group, sig)
}

// send sends a signal to a process of a container and to its process group.
func send(p Process, group int, sig unix.Signal) {
	if isOwn(group) {
		_ = p.signalGroup(group, sig)
	}
	_ = p.Kill(sig)
}

// isOwn reports whether a process group can be that of a container: it is not that of this
// process, and its number has no special meaning in kill(2).
func isOwn(group int) bool { return group > 1 && group != unix.Getpgrp() }

// Reap reaps the process if it is a child of this process and has ended.
func (p Process) Reap() {
	if st, err := ReadStat(p.PID); err == nil && p.is(st) && st.State == 'Z' && st.PPID == os.Getpid() {
		_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	}
}

// BootID returns the boot ID of the machine. It is "" if it cannot be read.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(id))
}

// Stat is part of /proc/<pid>/stat.
type Stat struct {
	PID, PPID, PGID, Session int
	State                    byte
	// Times are in clock ticks. A second has 100 of them on all architectures of Go.
	UTime, STime, ChildUTime, ChildSTime uint64
	MinorFaults, MajorFaults             uint64
	Start                                uint64
	// RSS in pages.
	RSS uint64
}

// ReadStat reads /proc/<pid>/stat.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(data)
}

// parseStat parses a line in the form of proc(5). The name of the command, which is in
// parentheses, may have any character.
func parseStat(data []byte) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("not a line of /proc/<pid>/stat: %q", data)
	}
	fields := bytes.Fields(data[end+1:]) // starts with the third field
	if len(fields) < 22 || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("a line of /proc/<pid>/stat with only %d fields: %q", len(fields)+2, data)
	}
	s := Stat{State: fields[0][0]}
	var errs []error
	integer := func(b []byte) int {
		n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
		errs = append(errs, err)
		return n
	}
	number := func(field int) uint64 {
		n, err := strconv.ParseUint(string(fields[field-3]), 10, 64)
		errs = append(errs, err)
		return n
	}
	s.PID = integer(data[:open])
	s.PPID, s.PGID, s.Session = integer(fields[1]), integer(fields[2]), integer(fields[3])
	s.MinorFaults, s.MajorFaults = number(10), number(12)
	s.UTime, s.STime = number(14), number(15)
	s.ChildUTime, s.ChildSTime = number(16), number(17)
	s.Start, s.RSS = number(22), number(24)
	return s, errors.Join(errs...)
}

// Processes returns all visible processes.
func Processes() ([]Stat, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Stat
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, err := ReadStat(pid); err == nil { // otherwise it has ended in between
				all = append(all, st)
			}
		}
	}
	return all, nil
}

// descendants returns the descendants of a process with their process groups. A process that
// is forked, or whose parent ends, in between may be missing.
func descendants(pid int) map[Process]int {
	all := map[Process]int{}
	root, err := ProcessOf(pid)
	if err != nil {
		return all
	}
	next := []Process{root}
	for len(next) > 0 {
		parent := next[len(next)-1]
		next = next[:len(next)-1]
		kids, err := children(parent.PID)
		if err != nil {
			continue
		}
		found := map[Process]int{}
		for _, kid := range kids {
			if st, err := ReadStat(kid); err == nil && st.PPID == parent.PID {
				found[Process{PID: kid, Start: st.Start, Boot: root.Boot}] = st.PGID
			}
		}
		// If the parent has ended, another process may have its pid, with children of its own.
		if st, err := ReadStat(parent.PID); err != nil || !parent.is(st) {
			continue
		}
		for kid, group := range found {
			all[kid] = group
			next = append(next, kid)
		}
	}
	return all
}

// children returns the children of a process. The kernel lists them for each thread.
func children(pid int) ([]int, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var kids []int
	for _, t := range tasks {
		data, err := os.ReadFile(filepath.Join(dir, t.Name(), "children"))
		if errors.Is(err, os.ErrNotExist) && len(tasks) == 1 {
			return childrenByScan(pid) // the kernel has no CONFIG_PROC_CHILDREN, or the process has ended
		}
		for _, f := range strings.Fields(string(data)) {
			if kid, err := strconv.Atoi(f); err == nil {
				kids = append(kids, kid)
			}
		}
	}
	return kids, nil
}

func childrenByScan(pid int) ([]int, error) {
	all, err := Processes()
	var kids []int
	for _, st := range all {
		if st.PPID == pid {
			kids = append(kids, st.PID)
		}
	}
	return kids, err
}

// killDescendants sends SIGKILL once to all descendants of a process. It kills whole process
// groups first, since the kernel does that in one step: no fork in the group escapes.
func killDescendants(pid int) {
	all := descendants(pid)
	done := map[int]bool{}
	for _, leaders := range []bool{true, false} { // first, since their groups are certain
		for p, group := range all {
			if leaders == (group == p.PID) && !done[group] && isOwn(group) {
				done[group] = p.signalGroup(group, unix.SIGKILL) == nil
			}
		}
	}
	for p := range all {
		_ = p.Kill(unix.SIGKILL)
	}
}
