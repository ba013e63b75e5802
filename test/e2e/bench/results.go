package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// key is what a line of a file is about.
type key struct {
	benchmark string // "ColdStart"
	pods      int
	contender string // "agent"
}

// results are the values of each round, by their units.
type results map[key]map[string][]float64

var namePattern = regexp.MustCompile(`^Benchmark(\w+)/pods=(\d+)/(\S+)$`)

// parse reads files with results, and skips everything but the lines of rounds.
func parse(text string) (results, error) {
	all := results{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || len(fields)%2 != 0 {
			continue // a name, the number 1, and pairs of a value and a unit
		}
		name := namePattern.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		pods, err := strconv.Atoi(name[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields[0], err)
		}
		k := key{name[1], pods, name[3]}
		if all[k] == nil {
			all[k] = map[string][]float64{}
		}
		for i := 2; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", fields[0], err)
			}
			all[k][fields[i+1]] = append(all[k][fields[i+1]], value)
		}
	}
	return all, nil
}

// config returns the lines of a file before the first result.
func config(text string) string {
	head, _, _ := strings.Cut(text, "\nBenchmark")
	return strings.TrimSpace(head) + "\n"
}

// linesOf returns the lines of the contestant without its name, but with the kind of its pods, as in "agent-csi".
func linesOf(text, contestant string) string {
	lines := regexp.MustCompile(`(?m)^(Benchmark\S+)/`+contestant+`((?:-\w+)? .*)$`).FindAllStringSubmatch(text, -1)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line[1] + line[2] + "\n")
	}
	return b.String()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// cell is the median of the values with what the rounds differ from it at most.
func cell(values []float64) string {
	m, most := median(values), 0.0
	if len(values) == 1 || m == 0 {
		return short(m)
	}
	for _, v := range values {
		most = max(most, math.Abs(v/m-1))
	}
	return fmt.Sprintf("%s ± %.0f %%", short(m), 100*most)
}

// legend says what is in the tables.
const legend = "A value is the median of the rounds. Behind ± is the greatest difference of a round from it, and in " +
	"brackets the median of the ratios to the first contestant in each round. A single round has no ±."

// tables returns a table in Markdown for each benchmark and number of pods: a row for each unit.
func tables(all results) string {
	var b strings.Builder
	type table struct {
		benchmark string
		pods      int
	}
	contenders := map[table][]string{}
	for k := range all {
		t := table{k.benchmark, k.pods}
		contenders[t] = append(contenders[t], k.contender)
	}
	for _, t := range slices.SortedFunc(maps.Keys(contenders), func(x, y table) int {
		return cmp.Or(strings.Compare(x.benchmark, y.benchmark), x.pods-y.pods)
	}) {
		names := contenders[t]
		slices.SortFunc(names, byStyle)
		units := map[string]bool{}
		fmt.Fprintf(&b, "| %s, %d pods |", t.benchmark, t.pods)
		for _, name := range names {
			s, _ := styleOf(name)
			fmt.Fprintf(&b, " %s |", s.label)
			for unit := range all[key{t.benchmark, t.pods, name}] {
				units[unit] = true
			}
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(names)) + "\n")
		for _, unit := range slices.Sorted(maps.Keys(units)) {
			fmt.Fprintf(&b, "| %s |", unit)
			first := all[key{t.benchmark, t.pods, names[0]}][unit]
			for i, name := range names {
				values := all[key{t.benchmark, t.pods, name}][unit]
				if len(values) > 0 {
					b.WriteString(" " + cell(values))
				}
				if i > 0 && len(values) > 0 && len(values) == len(first) && !slices.Contains(first, 0) {
					ratios := make([]float64, len(values))
					for round := range values {
						ratios[round] = values[round] / first[round]
					}
					b.WriteString(" (" + cell(ratios) + ")")
				}
				b.WriteString(" |")
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}
