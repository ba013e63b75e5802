package stats

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The parsers of this file read what the kernel writes below /proc (proc(5)). They skip what
// they do not know. No input makes them panic, or use more memory than its size.

// parseKeyed parses lines of a name and a number, such as memory.stat, /proc/vmstat and, with
// the unit of kB, /proc/meminfo. The name may end in a colon.
func parseKeyed(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) > 2 && fields[2] == "kB" {
			if n > math.MaxUint64>>10 {
				continue
			}
			n <<= 10
		}
		out[strings.TrimSuffix(fields[0], ":")] = n
	}
	return out
}

// parseNumber parses a file with one number.
func parseNumber(text string) (uint64, error) {
	return strconv.ParseUint(strings.TrimSpace(text), 10, 64)
}

var errNoCPU = errors.New("no line of all processors")

// userHZ is the unit of /proc/stat: 100 on all architectures of Go.
const userHZ = 100

// procStat is what this package needs of /proc/stat.
type procStat struct {
	// cpu is the CPU time of all processors, without idle ones.
	cpu time.Duration
	// boot is when the machine was started.
	boot time.Time
}

// parseProcStat parses /proc/stat. proc_stat(5): user, nice, system, idle, iowait, irq, softirq,
// steal; the time of guests is part of user.
func parseProcStat(text string) (procStat, error) {
	var out procStat
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 8 && fields[0] == "cpu":
			var ticks uint64
			for _, i := range []int{1, 2, 3, 6, 7} {
				n, err := strconv.ParseUint(fields[i], 10, 48)
				if err != nil {
					return out, err
				}
				ticks += n
			}
			out.cpu, found = time.Duration(min(ticks, math.MaxInt64/uint64(time.Second/userHZ)))*(time.Second/userHZ),
				true
		case len(fields) == 2 && fields[0] == "btime":
			if n, err := strconv.ParseInt(fields[1], 10, 48); err == nil {
				out.boot = time.Unix(n, 0)
			}
		}
	}
	if !found {
		return out, errNoCPU
	}
	return out, nil
}

// parseNetDev parses /proc/<pid>/net/dev: two lines of titles, and for each interface its name
// and 16 numbers.
func parseNetDev(text string) []statsv1alpha1.InterfaceStats {
	var out []statsv1alpha1.InterfaceStats
	for line := range strings.Lines(text) {
		name, numbers, ok := strings.Cut(line, ":")
		fields := strings.Fields(numbers)
		if !ok || len(fields) < 16 {
			continue
		}
		i := statsv1alpha1.InterfaceStats{Name: strings.TrimSpace(name)}
		for at, to := range map[int]**uint64{0: &i.RxBytes, 2: &i.RxErrors, 8: &i.TxBytes, 10: &i.TxErrors} {
			if n, err := strconv.ParseUint(fields[at], 10, 64); err == nil {
				*to = &n
			}
		}
		out = append(out, i)
	}
	return out
}

// parseDefaultRoute returns the interface of the default route in /proc/net/route; "" if there
// is none.
func parseDefaultRoute(text string) string {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			return fields[0]
		}
	}
	return ""
}

// parsePressure parses a file of the pressure stall information, as in
// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"; the total is in microseconds. nil means that
// there is none.
func parsePressure(text string) *statsv1alpha1.PSIStats {
	var out statsv1alpha1.PSIStats
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var d *statsv1alpha1.PSIData
		switch fields[0] {
		case "some":
			d = &out.Some
		case "full":
			d = &out.Full
		default:
			continue
		}
		found = true
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "avg10":
				d.Avg10 = percent(value)
			case "avg60":
				d.Avg60 = percent(value)
			case "avg300":
				d.Avg300 = percent(value)
			case "total":
				if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= math.MaxUint64/1000 {
					d.Total = n * 1000
				}
			}
		}
	}
	if !found {
		return nil
	}
	return &out
}

func percent(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !isPercent(f) {
		return 0
	}
	return f
}

// parseTasks returns the number of tasks of the machine in /proc/loadavg, as in
// "0.20 0.18 0.12 1/80 11206".
func parseTasks(text string) (int64, bool) {
	fields := strings.Fields(text)
	if len(fields) < 4 {
		return 0, false
	}
	_, all, ok := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	return n, ok && err == nil && n >= 0
}
