package supervise

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Orphans returns the processes that belong to a container but not to a living
// supervisor: those in the session that its command has led, those that carry the
// container's mark, and all below them. It is one look: what forks meanwhile may be missing.
func Orphans(id string, command Process) []Process {
	return slices.Collect(maps.Keys(look(id, command, func(Process, int) {}).found))
}

// Hunt kills what is left of a container whose supervisor has ended. Nobody is the parent of all of
// it any more, and a list of processes takes longer than a process that is replaced by its child
// lives. So each one is stopped when it is seen, with its process group, which the kernel does in one step that no
// fork in the group gets away from; and killed when a whole pass was made since, in which its children were found
// by their parent.
type Hunt struct {
	id      string
	command Process
	cgroup  Cgroup
	before  sight // of the pass before
	quiet   int   // passes since something was found
}

// sight is what one look at all processes has shown.
type sight struct {
	// found are the container's, with their process groups.
	found map[Process]int
	// unclear are zombies, and those without an environment: one that is executing something has none
	// for a moment. Those that were so before have nothing to do with the container.
	unclear map[Process]bool
	// missed says that there was a process that could not be looked at, mostly because it has ended; blind,
	// that not even their list could be read.
	missed, blind bool
}

// huntQuiet is how many passes in a row find nothing before a hunt ends where other
// processes come and go all the time, so that no pass is certain: more would be surer, and take seconds on a busy machine.
const huntQuiet = 10

// NewHunt does nothing yet.
func NewHunt(id string, command Process, cgroup Cgroup) *Hunt {
	return &Hunt{id: id, command: command, cgroup: cgroup}
}

// Pass goes over all processes once, and reports whether nothing is left of the
// container: it has found nothing, and nobody has escaped its eyes who may belong to it. Otherwise it is to be
// called again, after a pause that lets the killed end.
func (h *Hunt) Pass() (done bool) {
	left := h.cgroup.Kill()
	now := look(h.id, h.command, func(p Process, group int) { send(p, group, unix.SIGSTOP) })
	for p, group := range now.found {
		if _, held := h.before.found[p]; held {
			send(p, group, unix.SIGKILL)
		}
	}
	// The kernel lets go on what is stopped in a group when the last parent outside of that group ends.
	for p, group := range now.found {
		if _, held := h.before.found[p]; !held {
			send(p, group, unix.SIGSTOP)
		}
	}
	certain := !now.missed
	for p := range now.unclear {
		certain = certain && h.before.unclear[p]
	}
	h.before = now
	switch {
	case left+len(now.found) > 0:
		h.quiet = 0
		return false
	case now.blind:
		return false
	}
	h.quiet++
	return certain || h.quiet >= huntQuiet
}

// End kills what the last pass has stopped, for who does not go on.
func (h *Hunt) End() {
	for p, group := range h.before.found {
		send(p, group, unix.SIGKILL)
	}
}

// send sends a signal to a process of a container and to its group. A group cannot be told from one that has got
// its number; it was there when this process was looked at.
func send(p Process, group int, sig unix.Signal) {
	if isOwn(group) {
		_ = unix.Kill(-group, sig)
	}
	_ = p.Kill(sig)
}

// isOwn reports whether a process group can be a container's: not that of this
// process, and none to which kill(2) gives a meaning of its own.
func isOwn(group int) bool { return group > 1 && group != unix.Getpgrp() }

// look goes over all processes once. Those of the container are given to seen at once, since some are not there any
// more a millisecond later; those that are only below others, at the end. This process is none of them, nor is
// what it may not signal, as what has become root where this has not: that cannot be ended, and not be waited for.
func look(id string, command Process, seen func(p Process, group int)) sight {
	now := sight{found: map[Process]int{}, unclear: map[Process]bool{}}
	mark := []byte("\x00" + MarkerEnv + "=" + id + "\x00")
	boot := BootID()
	// A session's ID is not used again while a process is in the session, and all in it
	// are younger than its leader.
	inSession := func(st Stat) bool {
		if command.PID <= 0 || command.Boot != boot || st.Session != command.PID || st.Start < command.Start {
			return false
		}
		leader, err := ReadStat(command.PID)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
		}
		return leader.Start == command.Start
	}
	var all []Stat
	known := map[int]bool{}
	add := func(st Stat) {
		known[st.PID] = true
		if unix.Kill(st.PID, 0) == unix.EPERM {
			return
		}
		p := Process{PID: st.PID, Start: st.Start, Boot: boot}
		now.found[p] = st.PGID
		seen(p, st.PGID)
	}
	now.blind = eachPID(func(pid int) {
		if pid == os.Getpid() {
			return
		}
		st, err := ReadStat(pid)
		if err != nil {
			now.missed = true
			return
		}
		p := Process{PID: pid, Start: st.Start, Boot: boot}
		if st.State == 'Z' || st.State == 'X' {
			now.unclear[p] = true
			return
		}
		all = append(all, st)
		if inSession(st) {
			add(st)
			return
		}
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		switch {
		case errors.Is(err, fs.ErrPermission): // another user's
		case err != nil:
			now.missed = true
		case len(env) == 0:
			now.unclear[p] = true
		case bytes.Contains(append([]byte{0}, env...), mark):
			add(st)
		}
	}) != nil
	for grown := true; grown; {
		grown = false
		for _, st := range all {
			if !known[st.PID] && known[st.PPID] {
				add(st)
				grown = true
			}
		}
	}
	return now
}

// eachPID calls f for all processes that can be seen, in the order of their pids, and a
// few at a time: f comes soon after the kernel has listed the pid.
func eachPID(f func(pid int)) error {
	d, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var buf [280]byte // one entry of any name, and eight or so of pids
	for {
		n, err := unix.ReadDirent(d, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				f(pid)
			}
		}
	}
}
