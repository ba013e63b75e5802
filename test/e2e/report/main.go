// Report reads the output of "go test -json" and prints what somebody needs of it: failures with all their output, a
// line for each package, and at the end the slowest tests.
//
//	go test -json ./... | report [-v] [-slowest 10] [-skipped FILE] [-noskip]
//
// With -v it prints a line for each test that has ended. With -skipped it writes an expression for the flag -run to a
// file, which matches the tests that have skipped. With -noskip a test that skips is a failure. Its exit status is 1 if
// something has failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print a line for each test that has ended")
	slowest := flag.Int("slowest", 10, "print so many of the slowest tests")
	skipped := flag.String("skipped", "", "write the tests that have skipped to this file")
	noskip := flag.Bool("noskip", false, "a test that skips is a failure")
	flag.Parse()

	r := newReport(os.Stdout)
	r.verbose = *verbose
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	r.summary(*slowest)
	if *skipped != "" {
		if err := os.WriteFile(*skipped, []byte(r.skippedTests()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
	}
	if len(r.failures) > 0 || *noskip && len(r.skips) > 0 {
		os.Exit(1)
	}
}

// event is what "go test -json" prints, see "go doc test2json".
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

// test is a test, or a package if Test is "".
type test struct{ Package, Test string }

func (t test) String() string {
	if t.Test == "" {
		return t.Package
	}
	return t.Package + " " + t.Test
}

// isTop reports whether it is a test, and no part of one.
func (t test) isTop() bool { return t.Test != "" && !strings.Contains(t.Test, "/") }

type report struct {
	to      io.Writer
	verbose bool
	output  map[test][]string // of tests that have not ended
	took    map[test]float64  // the longest run of each that has run, in seconds
	runs    map[test]int      // how often each has ended
	// failures counts those of each test, and of each package in which no test has failed.
	failures map[test]int
	broken   map[string]bool // packages with a test that has failed
	skips    map[test]bool
}

func newReport(to io.Writer) *report {
	return &report{
		to: to, output: map[test][]string{}, took: map[test]float64{}, runs: map[test]int{}, failures: map[test]int{},
		broken: map[string]bool{}, skips: map[test]bool{},
	}
}

// read reads events until EOF. A line that is none is printed.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(r.to, "%s\n", strings.TrimSuffix(string(line), "\n"))
			} else {
				r.event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.to, e.Output)
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "pass", "skip", "fail":
		r.runs[t]++
		r.took[t] = max(r.took[t], e.Elapsed)
		r.ended(t, e.Action)
		delete(r.output, t)
	}
}

// ended counts the end of a test or of a package, and prints it.
func (r *report) ended(t test, action string) {
	if r.verbose && t.isTop() {
		fmt.Fprintf(r.to, "%s %v (%.1f s)\n", action, t, r.took[t])
	}
	switch {
	case action == "fail":
		if t.Test != "" || !r.broken[t.Package] {
			r.failures[t]++
		}
		r.broken[t.Package] = true
		r.print(t, func(line string) bool { return !strings.HasPrefix(line, "=== ") })
	case t.Test == "":
		r.print(t, func(line string) bool { return strings.HasPrefix(line, "ok ") })
	case action == "skip":
		r.skips[t] = true
		fmt.Fprintf(r.to, "--- SKIP: %v: %s", t, reason(r.output[t]))
	}
}

// print prints the lines of the output that are wanted.
func (r *report) print(t test, wanted func(line string) bool) {
	for _, line := range r.output[t] {
		if wanted(line) {
			fmt.Fprint(r.to, line)
		}
	}
}

// reason returns what a test that skips has logged last.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if !strings.HasPrefix(strings.TrimSpace(line), "---") && !strings.HasPrefix(line, "=== ") {
			return strings.TrimLeft(line, " ")
		}
	}
	return "\n"
}

// summary prints the slowest tests, those at the top level only, what has failed, and how many tests there were.
func (r *report) summary(slowest int) {
	var list []test
	passed := 0
	for t, n := range r.runs {
		if t.isTop() {
			list = append(list, t)
		}
		if t.Test != "" && n > r.failures[t] && !r.skips[t] {
			passed++
		}
	}
	slices.SortFunc(list, func(a, b test) int {
		return cmp.Or(cmp.Compare(r.took[b], r.took[a]), cmp.Compare(a.String(), b.String()))
	})
	fmt.Fprintln(r.to, "the slowest tests:")
	for _, t := range list[:min(slowest, len(list))] {
		fmt.Fprintf(r.to, "%7.1f s  %v\n", r.took[t], t)
	}
	var failed []string
	for t, n := range r.failures {
		failed = append(failed, fmt.Sprintf("failed: %v (%d of %d)\n", t, n, r.runs[t]))
	}
	slices.Sort(failed)
	fmt.Fprint(r.to, strings.Join(failed, ""))
	fmt.Fprintf(r.to, "%d passed, %d failed, %d skipped\n", passed, len(failed), len(r.skips))
}

// skippedTests returns an expression for the tests that have skipped, as a whole or in a part.
func (r *report) skippedTests() string {
	tops := map[string]bool{}
	for t := range r.skips {
		top, _, _ := strings.Cut(t.Test, "/")
		tops[top] = true
	}
	return "^(" + strings.Join(slices.Sorted(maps.Keys(tops)), "|") + ")$\n"
}
