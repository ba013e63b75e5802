package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// key is what a line of the benchmarks' output is about.
type key struct {
	benchmark string // "ColdStart"
	pods      int
	contender string // "agent"
}

// results are the metrics of each line, by their units.
type results map[key]map[string]float64

// The name of a benchmark ends with the number of processors, unless that is 1.
var namePattern = regexp.MustCompile(`^Benchmark(\w+)/pods=(\d+)/(\w+)(?:-\d+)?$`)

// parse reads what "go test -bench" prints, and skips everything but lines of results
// for a number of pods. Of two lines with one name the later replaces the earlier.
func parse(in io.Reader) (results, error) {
	all := results{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || len(fields)%2 != 0 {
			continue // a name, a number of rounds, and pairs of a value and a unit
		}
		name := namePattern.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		pods, err := strconv.Atoi(name[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields[0], err)
		}
		metrics := map[string]float64{}
		for i := 2; i < len(fields); i += 2 {
			if metrics[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %w", fields[0], err)
			}
		}
		all[key{name[1], pods, name[3]}] = metrics
	}
	return all, lines.Err()
}
