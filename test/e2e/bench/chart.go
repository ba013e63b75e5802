package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// chart is one quantity against the number of pods.
type chart struct {
	file, title, axis string
	benchmark, unit   string
	// high is the unit of the upper end of the bar through a point. Default: the bar is from the least to the greatest
	// of the rounds.
	high string
	// logarithmic is for contenders that are orders of magnitude apart.
	logarithmic bool
}

var charts = []chart{
	{file: "start.svg", title: "Cold start: from the manifests to all pods Running", axis: "seconds" + rounds,
		benchmark: "ColdStart", unit: "s"},
	{file: "restart.svg", title: "Restart: from the exit of a container to its next start",
		axis: "milliseconds, median; bars up to the 99th percentile", benchmark: "Restart", unit: "ms", high: "ms-p99"},
	{file: "removal.svg", title: "Removal of all pods, with a grace period of 2 s that they use up",
		axis: "seconds" + rounds, benchmark: "Removal", unit: "s"},
	{file: "stopped.svg", title: "Removal: until the runtime lists no container that runs", axis: "seconds" + rounds,
		benchmark: "Removal", unit: "s-stopped"},
	{file: "idle.svg", title: "CPU of the agent while nothing happens", axis: "percent of a core (logarithmic)",
		benchmark: "Idle", unit: "cpu-%", logarithmic: true},
	{file: "memory.svg", title: "Resident memory of the agent", axis: "MB", benchmark: "Idle", unit: "MB"},
	{file: "boot.svg", title: "Boot: from the start of the agent to the start of the last pod",
		axis: "seconds" + rounds, benchmark: "Boot", unit: "s"},
	{file: "fleet.svg", title: "A fleet of hollow nodes with 10 pods each: resident memory", axis: "MB",
		benchmark: "Fleet", unit: "MB"},
}

const rounds = "; bars from the fastest to the slowest round"

// style is how a contender is named and drawn. The colours are those of Okabe and Ito,
// which the colour-blind can tell apart, and have contrast on white and on black.
type style struct {
	contender, label, colour string
	dashed                   bool
}

// styles are in the order of the legend. A contender that is not among them comes
// after them, by its name.
var styles = []style{
	{"bare", "bare client", "#8a8a8a", false},
	{"baseline", "baseline", "#009e73", true},
	{"agent", "minikubelet", "#0090d0", false},
	{"generic", "EventedPLEG=false", "#e69f00", true},
	{"kubelet", "kubelet", "#d55e00", false},
	{"offline", "minikubelet, of an API server", "#cc79a7", true},
	{"hollow", "all nodes", "#0090d0", false},
	{"apiserver", "kube-apiserver", "#d55e00", false},
	{"etcd", "etcd", "#009e73", true},
	{"controllers", "controller-manager", "#e69f00", true},
	{"scheduler", "scheduler", "#8a8a8a", true},
}

func styleOf(contender string) (style, int) {
	for i, s := range styles {
		if s.contender == contender {
			return s, i
		}
	}
	return style{contender, contender, "#cc79a7", true}, len(styles)
}

type point struct {
	pods             int
	value, low, high float64
}

// line is a contender's points, by the number of pods.
type line struct {
	style
	points []point
}

// lines returns what the results have for the chart, in the order of the legend.
func (c chart) lines(all results) []line {
	of := map[string][]point{}
	for k, metrics := range all {
		values := metrics[c.unit]
		if k.benchmark != c.benchmark || len(values) == 0 || c.logarithmic && slices.Min(values) <= 0 {
			continue
		}
		p := point{k.pods, median(values), slices.Min(values), slices.Max(values)}
		if highs := metrics[c.high]; len(highs) > 0 {
			p.low, p.high = p.value, median(highs)
		}
		of[k.contender] = append(of[k.contender], p)
	}
	var lines []line
	for contender, points := range of {
		s, _ := styleOf(contender)
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.pods, b.pods) })
		lines = append(lines, line{s, points})
	}
	slices.SortFunc(lines, func(a, b line) int { return byStyle(a.contender, b.contender) })
	return lines
}

// byStyle compares contenders by the order of the legend.
func byStyle(a, b string) int {
	_, i := styleOf(a)
	_, j := styleOf(b)
	return cmp.Or(cmp.Compare(i, j), strings.Compare(a, b))
}

// pods returns the numbers of pods that some line has, in order.
func pods(lines []line) []int {
	set := map[int]bool{}
	for _, l := range lines {
		for _, p := range l.points {
			set[p.pods] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// short is the value with three significant digits.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', max(0, digits), 64)
}
