package supervise

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Orphans returns the processes of a container without a living supervisor: those in the
// session of its command, those with its mark (see [Mark]), and the descendants of both. A
// process that is forked in between may be missing.
func Orphans(environs *Environs, mark string, command Process) []Process {
	return slices.Collect(maps.Keys(look(environs, mark, command, func(Process, int) {}).found))
}

// Hunt kills the processes of a container whose supervisor has ended. They have no common
// parent any more, and a process that is replaced by its child may live for a shorter time
// than it takes to list all processes. So a hunt stops each process when it finds it,
// together with its process group, which the kernel does in one step. It kills the process
// after another whole pass, which has found its children by their parent.
type Hunt struct {
	environs *Environs
	mark     string
	command  Process
	cgroup   Cgroup
	before   sight // of the last pass
	quiet    int   // passes since a process was found
}

// sight is the result of a pass over all processes.
type sight struct {
	// found are the processes of the container with their process groups.
	found map[Process]int
	// unclear are zombies and processes without an environment, which a process does not
	// have for a moment while it executes a program. A process that was unclear in the last
	// pass, too, is not of the container.
	unclear map[Process]bool
	// missed means that a process could not be read, mostly because it has ended. blind means
	// that the list of processes could not be read.
	missed, blind bool
}

// huntQuiet is the number of passes in a row without a result after which a hunt ends if no
// pass is certain, because other processes start and end all the time. More passes would be
// more certain, and would take seconds on a busy machine.
const huntQuiet = 10

// NewHunt returns a hunt for the processes of a container. For mark, see [Mark].
func NewHunt(environs *Environs, mark string, command Process, cgroup Cgroup) *Hunt {
	return &Hunt{environs: environs, mark: mark, command: command, cgroup: cgroup}
}

// Pass makes a pass over all processes. It reports whether no process of the container is
// left: it has found none, and has missed none that may be of the container. Otherwise the
// caller calls it again, after a pause in which killed processes end.
func (h *Hunt) Pass() (done bool) {
	left := h.cgroup.Kill()
	now := look(h.environs, h.mark, h.command, func(p Process, group int) { send(p, group, unix.SIGSTOP) })
	for p, group := range now.found {
		if _, held := h.before.found[p]; held {
			send(p, group, unix.SIGKILL)
		}
	}
	// The kernel continues the stopped processes of a group when the last parent outside of
	// the group ends.
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

// End kills the processes that the last pass has stopped. It is for a caller that ends the
// hunt early.
func (h *Hunt) End() {
	for p, group := range h.before.found {
		send(p, group, unix.SIGKILL)
	}
}

// look makes a pass over all processes and calls seen for each one of the container. It
// does so at once, since a process may have ended a millisecond later, but for descendants
// only at the end. It leaves out this process, and processes that it may not signal, such as
// one that has become root if this process is not: these cannot be killed.
func look(environs *Environs, variable string, command Process, seen func(p Process, group int)) sight {
	now := sight{found: map[Process]int{}, unclear: map[Process]bool{}}
	mark := []byte("\x00" + variable + "\x00")
	boot := BootID()
	// The ID of a session is not reused while a process is in the session, and all its
	// processes are younger than its leader.
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
		env, err := environs.read(p)
		switch {
		case errors.Is(err, fs.ErrPermission): // of another user
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

// Environs reads the environments of processes, for all hunts of a server. It is safe for
// concurrent use.
//
// An environment is in the memory of its process. A user can have that come from a file system
// that this user serves (FUSE), so that a read does not return for any time. Then the process
// counts as one that cannot be read.
type Environs struct {
	readFile func(path string) ([]byte, error)
	patience time.Duration

	mu sync.Mutex
	// reads are those under way, one of a process at most: each holds a thread.
	reads map[Process]*environRead
	// stuck is the number of reads that have not returned after patience.
	stuck int
}

// environRead is the read of an environment. env and err may be read when done is closed.
type environRead struct {
	done  chan struct{}
	stuck bool // guarded by Environs.mu
	env   []byte
	err   error
}

const (
	// environPatience is the time that the read of an environment may take.
	environPatience = 200 * time.Millisecond
	// maxStuck is the number of stuck reads up to which another one begins.
	maxStuck = 32
)

// NewEnvirons returns a reader of environments.
func NewEnvirons() *Environs {
	return &Environs{
		readFile: func(path string) ([]byte, error) { return readStart(path, maxEnviron) },
		patience: environPatience, reads: map[Process]*environRead{},
	}
}

var errStuck = errors.New("the memory of the process cannot be read")

// read returns the environment of a process. Calls for the same process share a read.
func (e *Environs) read(p Process) ([]byte, error) {
	r := e.begin(p)
	if r == nil {
		return nil, errStuck
	}
	t := time.NewTimer(e.patience)
	defer t.Stop()
	select {
	case <-r.done:
		return r.env, r.err
	case <-t.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-r.done:
		return r.env, r.err
	default:
	}
	if !r.stuck {
		r.stuck = true
		e.stuck++
	}
	return nil, errStuck
}

// begin begins a read, or returns the one under way. It returns nil if that is stuck, or too many are.
func (e *Environs) begin(p Process) *environRead {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.reads[p]; r != nil {
		if r.stuck {
			return nil
		}
		return r
	}
	if e.stuck >= maxStuck {
		return nil
	}
	r := &environRead{done: make(chan struct{})}
	e.reads[p] = r
	go func() {
		env, err := e.readFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.reads, p)
		if r.stuck {
			e.stuck--
		}
		r.env, r.err = env, err
		close(r.done)
	}()
	return r
}

// maxEnviron is the number of bytes that are read of an environment. A program has up to 6 MiB
// of arguments and environment (execve(2)), but can then choose another place in its memory for its
// environment, of any size (prctl(2), PR_SET_MM_MAP).
const maxEnviron = 8 << 20

// eachPID calls f for all visible processes in the order of their pids. It reads a few at a
// time, so that f is called soon after the kernel has listed the pid.
func eachPID(f func(pid int)) error {
	d, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var buf [280]byte // room for one entry with any name, or about eight pids
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
