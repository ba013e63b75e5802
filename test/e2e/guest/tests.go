package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

// Tests with names that begin with TestGuest run in a guest only.
var (
	declared = regexp.MustCompile(`(?m)^func (TestGuest\w*)\(`)
	outcome  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// guestKind is a guest of tests whose names have a word.
type guestKind struct {
	name, word string
	systemd    bool
	nodes      int
	// kernel has arguments of the kernel.
	kernel string
}

// guestKinds are all of them. A test without one of the words runs in the last one.
var guestKinds = []guestKind{
	{name: "systemd", word: "Systemd", systemd: true, nodes: 1},
	{name: "numa", word: "NUMA", nodes: 2},
	{name: "selinux", word: "SELinux", nodes: 1, kernel: "security=selinux selinux=1 "},
	{name: "plain", nodes: 1},
}

// kindOf returns the name of the guest in which the test runs.
func kindOf(test string) string {
	return guestKinds[slices.IndexFunc(guestKinds,
		func(k guestKind) bool { return strings.Contains(test, k.word) })].name
}

// testPackage is a package with tests for guests.
type testPackage struct {
	dir    string
	tests  []string
	binary string
}

// find returns the packages in and below the directory that have tests whose names match.
func find(dir string, match *regexp.Regexp) ([]*testPackage, error) {
	found := map[string]*testPackage{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if path != dir && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllSubmatch(data, -1) {
			name, dir := string(m[1]), filepath.Dir(path)
			if !match.MatchString(name) {
				continue
			}
			if found[dir] == nil {
				found[dir] = &testPackage{dir: dir}
			}
			found[dir].tests = append(found[dir].tests, name)
		}
		return nil
	})
	var list []*testPackage
	for _, p := range found {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *testPackage) int { return strings.Compare(a.dir, b.dir) })
	return list, err
}

// build builds the test binary.
func (p *testPackage) build(ctx context.Context, binary string) error {
	p.binary = binary
	return goCommand(ctx, p.dir, "test", "-c", "-o", binary, ".")
}

func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, out)
	}
	return nil
}

// run is a part of a package's tests in one guest.
type testRun struct {
	*testPackage
	tests []string
	line  []byte
	// passed has the tests that have passed, bad the lines of the others.
	passed []string
	bad    []string
}

// runs returns the runs of the tests in the guest of that name.
func runs(packages []*testPackage, kind string) []*testRun {
	var list []*testRun
	for _, p := range packages {
		r := &testRun{testPackage: p}
		for _, test := range p.tests {
			if kindOf(test) == kind {
				r.tests = append(r.tests, test)
			}
		}
		if len(r.tests) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// divided returns the runs for each guest. The end-to-end tests, which take as long as all others, have one of their
// own.
func divided(list []*testRun) (guests [][]*testRun) {
	var endToEnd, others []*testRun
	for _, r := range list {
		if filepath.Base(r.dir) == "e2e" {
			endToEnd = append(endToEnd, r)
		} else {
			others = append(others, r)
		}
	}
	for _, runs := range [][]*testRun{endToEnd, others} {
		if len(runs) > 0 {
			guests = append(guests, runs)
		}
	}
	return guests
}

func (r *testRun) command(env []string, timeout time.Duration) job.Command {
	return job.Command{
		Args: []string{r.binary, "-test.v", "-test.timeout", timeout.String(), "-test.run",
			"^(" + strings.Join(r.tests, "|") + ")$"},
		Dir: r.dir, Env: env,
	}
}

// receive takes output of the tests, and calls print with each full line of it.
func (r *testRun) receive(output []byte, print func(string)) {
	r.line = append(r.line, output...)
	for {
		line, rest, ok := bytes.Cut(r.line, []byte("\n"))
		if !ok {
			return
		}
		r.line = rest
		text := string(line)
		print(text)
		if m := outcome.FindStringSubmatch(text); m != nil && m[1] == "PASS" {
			r.passed = append(r.passed, m[2])
		} else if m != nil {
			r.bad = append(r.bad, strings.TrimSpace(text))
		}
	}
}

// problems returns why the run is not a success: each of its tests has to run and to pass, and nothing
// may be skipped.
func (r *testRun) problems(exit job.Exit) []string {
	list := slices.Clone(r.bad)
	for _, test := range r.tests {
		if !slices.Contains(r.passed, test) {
			list = append(list, test+" has not passed")
		}
	}
	if exit.Error != "" {
		list = append(list, exit.Error)
	} else if exit.Code != 0 {
		list = append(list, fmt.Sprintf("exit status %d", exit.Code))
	}
	return list
}
