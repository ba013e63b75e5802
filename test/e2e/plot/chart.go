package main

import (
	"cmp"
	"fmt"
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
	// low and high are the units of the ends of the bar through a point; "" is the point.
	low, high string
	// logarithmic is for contenders that are orders of magnitude apart.
	logarithmic bool
	// more are further units for the table, if the input has them.
	more []string
}

var charts = []chart{
	{file: "start.svg", title: "Cold start: from the manifests to all pods Running",
		axis:      "seconds; bars from the fastest to the slowest round",
		benchmark: "ColdStart", unit: "s", low: "s-min", high: "s-max", more: []string{"ratio", "cpu-s"}},
	{file: "restart.svg", title: "Restart: from the exit of a container to its next start",
		axis:      "milliseconds, median; bars up to the 99th percentile",
		benchmark: "Restart", unit: "ms", high: "ms-p99", more: []string{"ratio", "ratio-p99"}},
	{file: "removal.svg", title: "Removal of all pods, with a grace period of 2 s that they use up",
		axis:      "seconds; bars from the fastest to the slowest round",
		benchmark: "Removal", unit: "s", low: "s-min", high: "s-max",
		more: []string{"ratio", "s-stopped", "ratio-stopped", "s-killed", "cpu-s", "pod-cpu-ms", "runtime-cpu-s",
			"system-cpu-s", "sandbox-stops", "errors"}},
	{file: "stopped.svg", title: "Removal: until the runtime lists no container that runs", axis: "seconds",
		benchmark: "Removal", unit: "s-stopped"},
	{file: "idle.svg", title: "CPU of the agent while nothing happens", axis: "percent of a core (logarithmic)",
		benchmark: "Idle", unit: "cpu-%", logarithmic: true, more: []string{"containerd-%", "containerd-alone-%",
			"noise-%"}},
	{file: "memory.svg", title: "Resident memory of the agent", axis: "MB",
		benchmark: "Idle", unit: "MB"},
	{file: "fleet.svg", title: "A fleet of hollow nodes with 10 pods each: resident memory", axis: "MB",
		benchmark: "Fleet", unit: "MB", more: []string{"ready-s", "s", "running", "cpu-s", "idle-cpu-%"}},
}

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
	{"agent", "minikubelet", "#0090d0", false},
	{"baseline", "baseline", "#009e73", true},
	{"generic", "EventedPLEG=false", "#e69f00", true},
	{"kubelet", "kubelet", "#d55e00", false},
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
		value, ok := metrics[c.unit]
		if k.benchmark != c.benchmark || !ok || c.logarithmic && value <= 0 {
			continue
		}
		p := point{k.pods, value, value, value}
		if low, ok := metrics[c.low]; ok {
			p.low = low
		}
		if high, ok := metrics[c.high]; ok {
			p.high = high
		}
		of[k.contender] = append(of[k.contender], p)
	}
	var lines []line
	for contender, points := range of {
		s, _ := styleOf(contender)
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.pods, b.pods) })
		lines = append(lines, line{s, points})
	}
	slices.SortFunc(lines, func(a, b line) int {
		_, i := styleOf(a.contender)
		_, j := styleOf(b.contender)
		return cmp.Or(cmp.Compare(i, j), strings.Compare(a.contender, b.contender))
	})
	return lines
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

// table returns the chart's numbers in Markdown: a row for each number of pods and
// contender.
func (c chart) table(all results, lines []line) string {
	columns := []string{c.unit}
	for _, unit := range slices.Concat([]string{c.low, c.high}, c.more) {
		// The ends of bars that are points, as those of a single round, say nothing.
		says := func(metrics map[string]float64) bool {
			value, ok := metrics[unit]
			return ok && value != metrics[c.unit]
		}
		if slices.ContainsFunc(lines, func(l line) bool {
			return slices.ContainsFunc(l.points,
				func(p point) bool { return says(all[key{c.benchmark, p.pods, l.contender}]) })
		}) {
			columns = append(columns, unit)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| pods | | %s |\n|---|---|%s\n", strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)))
	for _, n := range pods(lines) {
		first := fmt.Sprintf(" %d ", n)
		for _, l := range lines {
			metrics, ok := all[key{c.benchmark, n, l.contender}]
			if !ok {
				continue
			}
			fmt.Fprintf(&b, "|%s| %s |", first, l.label)
			first = " "
			for _, unit := range columns {
				if value, ok := metrics[unit]; ok {
					fmt.Fprintf(&b, " %s |", short(value))
				} else {
					b.WriteString(" |")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// short is the value with three significant digits.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', max(0, digits), 64)
}
