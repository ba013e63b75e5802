package oom

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Kill is a process that the kernel has killed for lack of memory.
type Kill struct {
	// PID and Process are the process and its name, of 15 bytes at most. Control characters in it are replaced.
	PID     int
	Process string
	// Cgroup is the cgroup of the process; "" if the kernel did not log it. It is a path in the hierarchy of the memory
	// controller, from the root of the machine.
	Cgroup string
	// Global means that the machine was out of memory. Otherwise a limit was reached, that of the cgroup Limit; "" if
	// the kernel did not log it.
	Global bool
	Limit  string
	// Group means that the kernel killed the process because of another one, since all processes of a cgroup are to be
	// killed together (memory.oom.group).
	Group bool
	// Counted is the number of processes if the kill is known by the counts of a cgroup alone, and 0 if the log has it.
	// Then PID and Process are not known, and neither is whether it is global.
	Counted int
	// At is when the kernel logged the kill, by the clock of its log, which begins when the machine starts.
	At time.Duration
}

// Parser finds kills in the records of the kernel's log. A kill has several records, and the parser remembers those
// before the last one. The zero value is ready. It is not safe for concurrent use.
//
// Kernels before 5.0 write
//
//	Task in /kubepods/pod1/c1 killed as a result of limit of /kubepods/pod1
//	Memory cgroup out of memory: Kill process 7 (stress) score 999 or sacrifice child
//	Killed process 7 (stress) total-vm:1024kB, anon-rss:...
//
// and later ones
//
//	oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),...,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=stress,pid=7,uid=0
//	Memory cgroup out of memory: Killed process 7 (stress) total-vm:1024kB, ...
//	Tasks in /kubepods/pod1/c1 are going to be killed due to memory.oom.group set
//
// If there are many kills, the kernel leaves out records with a cgroup.
type Parser struct {
	cause cause
	// last is the last kill, if no record has named its cgroup yet.
	last Kill
	// group is when the processes of a cgroup began to be killed together.
	group   time.Duration
	grouped bool
}

// cause is what the records before a kill say about it.
type cause struct {
	known, memcg  bool
	pid           int // 0 in records of old kernels
	cgroup, limit string
}

// together is the time in which the kernel kills the processes of a cgroup, at most. It takes microseconds for each.
const together = time.Second

// maxRecord is the largest record that the kernel writes (CONSOLE_EXT_LOG_MAX).
const maxRecord = 8192

// Parse reads the next record, as one read of /dev/kmsg returns it. ok means that the record ends a kill.
func (p *Parser) Parse(record []byte) (k Kill, ok bool) {
	text, at, ok := split(record)
	if !ok {
		return Kill{}, false
	}
	switch {
	case bytes.Contains(text, []byte(" invoked oom-killer:")):
		p.cause, p.last, p.grouped = cause{}, Kill{}, false
	case bytes.HasPrefix(text, []byte("oom-kill:constraint=")):
		p.cause = parseCause(unescape(text))
	case bytes.HasPrefix(text, []byte("Task in /")):
		p.cause = parseOldCause(unescape(text))
	case bytes.HasPrefix(text, []byte("Memory cgroup out of memory: Kill process ")):
		p.cause.memcg = true
	case bytes.HasPrefix(text, []byte("Tasks in /")):
		return p.killedTogether(unescape(text), at)
	case bytes.Contains(text, []byte("Killed process ")):
		return p.killed(unescape(text), at)
	}
	return Kill{}, false
}

// killed reads the record of a killed process.
func (p *Parser) killed(text string, at time.Duration) (Kill, bool) {
	before, rest, _ := strings.Cut(text, "Killed process ")
	memcg := strings.HasPrefix(before, "Memory cgroup out of memory")
	if before != "" && !memcg && !strings.HasPrefix(before, "Out of memory") {
		return Kill{}, false // a text of somebody else
	}
	number, rest, ok := strings.Cut(rest, " (")
	pid, end := parsePID(number), strings.LastIndexByte(rest, ')')
	if !ok || pid == 0 || end < 0 {
		return Kill{}, false
	}
	k := Kill{PID: pid, Process: printable(rest[:end]), At: at}
	c := p.cause
	p.cause = cause{}
	switch {
	case c.known && (c.pid == pid || c.pid == 0):
		k.Cgroup, k.Limit = c.cgroup, c.limit
		memcg = memcg || c.limit != ""
	case p.grouped && at-p.group <= together:
		k.Group = true
	}
	k.Global = !memcg && !c.memcg
	p.last = Kill{}
	if k.Cgroup == "" && !k.Group {
		p.last = k
	}
	return k, true
}

// killedTogether reads the record that names the cgroup whose processes are killed together. It comes after the kill of
// the first of them. If no record has named the cgroup before, it ends that kill a second time.
func (p *Parser) killedTogether(text string, at time.Duration) (Kill, bool) {
	cgroup, ok := strings.CutSuffix(strings.TrimPrefix(text, "Tasks in "),
		" are going to be killed due to memory.oom.group set")
	if !ok {
		return Kill{}, false
	}
	p.group, p.grouped = at, true
	k := p.last
	p.last = Kill{}
	if k.PID == 0 || at-k.At > together {
		return Kill{}, false
	}
	k.Cgroup, k.Group = cgroup, true
	return k, true
}

// parseCause reads a record of Linux 5.0 and later. Names of cgroups and of processes can contain anything but a slash,
// such as ",pid=1". A cgroup that a container has made is below its own, so the beginning of a path is always the
// kernel's. It is not if the name of a cgroup above the other one could hide the beginning; then no cgroup is known.
func parseCause(text string) cause {
	head, tail, ok := cutLast(text, ",pid=")
	number, _, _ := strings.Cut(tail, ",")
	c := cause{known: true, pid: parsePID(number), memcg: strings.Contains(head, ",oom_memcg=")}
	if !ok || c.pid == 0 || strings.Count(head, ",task_memcg=") != 1 || strings.Count(head, ",oom_memcg=") > 1 {
		c.known = false
		return c
	}
	head, path, _ := strings.Cut(head, ",task_memcg=")
	path, _, ok = strings.Cut(path, ",task=")
	if !ok || !strings.HasPrefix(path, "/") {
		c.known = false
		return c
	}
	c.cgroup = path
	_, c.limit, _ = strings.Cut(head, ",oom_memcg=")
	return c
}

func parseOldCause(text string) cause {
	path, limit, ok := cutLast(strings.TrimPrefix(text, "Task in "), " killed as a result of limit of ")
	return cause{known: ok, memcg: ok, cgroup: path, limit: limit}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// parsePID returns 0 if the text is no PID.
func parsePID(text string) int {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// split returns the text of a record of the kernel and its time. A record is "level,number,microseconds,flags;text",
// and lines of properties. The level of a record that a process has written is 8 or more
// (Documentation/ABI/testing/dev-kmsg).
func split(record []byte) (text []byte, at time.Duration, ok bool) {
	head, text, ok := bytes.Cut(record[:min(len(record), maxRecord)], []byte{';'})
	if !ok {
		return nil, 0, false
	}
	level, head, _ := bytes.Cut(head, []byte{','})
	_, head, _ = bytes.Cut(head, []byte{','})
	micros, _, _ := bytes.Cut(head, []byte{','})
	if len(level) != 1 || level[0] < '0' || level[0] > '7' || len(micros) > 16 {
		return nil, 0, false
	}
	n, err := strconv.ParseUint(string(micros), 10, 53)
	if err != nil {
		return nil, 0, false
	}
	text, _, _ = bytes.Cut(text, []byte{'\n'})
	return text, time.Duration(n) * time.Microsecond, true
}

// unescape returns the text without the escapes of the log, such as \x20.
func unescape(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if n, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// maxName is the length of names that are shown. Those of the kernel have 15 bytes (TASK_COMM_LEN); those of its own
// threads may have more.
const maxName = 64

// printable returns the name with what cannot be printed replaced.
func printable(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), maxName)], "?")
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
}
