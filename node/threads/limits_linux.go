package threads

import (
	"cmp"
	"context"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// findLimits returns the limits of this process. What cannot be read has none.
func findLimits(proc, mount string) []limit {
	proc, mount = cmp.Or(proc, "/proc"), cmp.Or(mount, cgroupfs.Mount)
	return append(cgroupLimits(proc, mount), userLimit(proc)...)
}

// cgroupLimits returns the limits of the cgroup of this process, and of those above.
func cgroupLimits(proc, mount string) (limits []limit) {
	text, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return nil
	}
	own := cgroupfs.PathOf(string(text), "pids")
	if _, _, err := cgroupfs.Dir(mount, "pids", own); own == "" || err != nil {
		own = "/" // in a container that sees its own cgroup only
	}
	for at := path.Clean("/" + own); ; at = path.Dir(at) {
		if dir, legacy, err := cgroupfs.Dir(mount, "pids", at); err == nil {
			l := limit{name: filepath.Join(dir, "pids.max"), events: filepath.Join(dir, "pids.events.local"),
				silent: legacy}
			var uerr error
			l.max, err = cgroupfs.Number(l.name)
			l.used, uerr = cgroupfs.Number(filepath.Join(dir, "pids.current"))
			if err == nil && uerr == nil && l.max < math.MaxInt64 {
				if _, err := os.Stat(l.events); err != nil {
					// Linux before 6.11, and version 1, report to the cgroup of the process that fails
					ownDir, _, _ := cgroupfs.Dir(mount, "pids", own)
					l.events = filepath.Join(ownDir, "pids.events")
				}
				limits = append(limits, l)
			}
		}
		if at == "/" {
			return limits
		}
	}
}

// userLimit returns the limit of the user. Root has none.
func userLimit(proc string) []limit {
	var r unix.Rlimit
	if os.Getuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &r) != nil || r.Cur >= math.MaxInt64 {
		// RLIM_INFINITY is the largest number
		return nil
	}
	return []limit{{name: "RLIMIT_NPROC", max: int64(r.Cur), used: threadsOf(proc, os.Getuid())}}
}

// threadsOf counts the threads of the processes of a user.
func threadsOf(proc string, uid int) (n int64) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "status"))
		if err != nil {
			continue // it has ended
		}
		own, threads := false, int64(0)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields := strings.Fields(value)
			switch {
			case len(fields) == 0:
			case name == "Uid":
				own = fields[0] == strconv.Itoa(uid)
			case name == "Threads":
				threads, _ = strconv.ParseInt(fields[0], 10, 64)
			}
		}
		if own {
			n += threads
		}
	}
	return n
}

// readPeriod is the time between two reads of events that the kernel does not signal.
const readPeriod = 30 * time.Second

// awaitLimit waits until one of the limits is reached, or until ctx ends. period is [readPeriod] but for tests.
func awaitLimit(ctx context.Context, limits []limit, period time.Duration) (limit, error) {
	signals, err := cgroupfs.NewSignals()
	if err != nil {
		return limit{}, err
	}
	defer func() { _ = signals.Close() }()
	before := map[string]uint64{}
	silent := false
	for _, l := range limits {
		if l.events == "" {
			continue
		}
		if err := signals.AddEvents(l.events, l.events); err != nil {
			return limit{}, err
		}
		before[l.events] = timesReached(l.events)
		silent = silent || l.silent
	}
	for {
		var deadline time.Time
		if silent {
			deadline = time.Now().Add(cmp.Or(period, readPeriod))
		}
		if _, err := signals.Wait(ctx, deadline); err != nil {
			return limit{}, err
		}
		for _, l := range limits {
			if l.events != "" && timesReached(l.events) > before[l.events] {
				return l, nil
			}
		}
	}
}

// timesReached returns how often a limit was reached.
func timesReached(events string) uint64 {
	counts, err := cgroupfs.Counts(events)
	if err != nil {
		return 0 // the cgroup was removed
	}
	return counts["max"]
}
