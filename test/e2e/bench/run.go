package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// run runs the benchmarks with further variables of the environment, and returns the file with what was measured, also
// if some of them have failed.
func run(ctx context.Context, o options, env []string) (file string, err error) {
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, "e2e.test")
	if _, err := output("go", "test", "-c", "-o", binary, "."); err != nil {
		return "", err
	}
	commit, err := output("git", "describe", "--always", "--dirty")
	if err != nil {
		return "", err
	}
	file, err = filepath.Abs(filepath.Join(o.dir, time.Now().UTC().Format("20060102-150405-")+commit+".txt"))
	if err != nil {
		return "", err
	}
	env = append(os.Environ(), append(env, "KUBELETKIT_E2E_RESULTS="+file)...)
	for name, value := range map[string]string{"PODS": o.pods, "CONTESTANTS": o.contestants} {
		if value != "" {
			env = append(env, "KUBELETKIT_E2E_"+name+"="+value)
		}
	}
	if err := os.WriteFile(file, []byte(machine(commit, env)), 0o644); err != nil {
		return "", err
	}
	var failed error
	for _, name := range strings.Split(o.only, ",") {
		cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", "^Benchmark"+name+"$",
			"-test.timeout", "6h", "-test.benchtime", strconv.Itoa(o.rounds)+"x")
		cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
		before, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		err = cmd.Run()
		if after, err2 := os.Stat(file); err == nil && err2 == nil && after.Size() == before.Size() {
			err = errors.New("no results of these contestants")
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return file, failed
}

// machine returns the lines of what was measured and where.
func machine(commit string, env []string) string {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	ask := func(name string, args ...string) string {
		out, err := output(name, args...)
		if err != nil {
			return ""
		}
		first, _, _ := strings.Cut(out, "\n")
		return first
	}
	field := func(file, name string) string {
		data, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(data), name)
		value, _, _ := strings.Cut(rest, "\n")
		return strings.Trim(value, "\t :")
	}
	line("commit", commit)
	line("date", time.Now().UTC().Format(time.DateTime))
	line("goos", runtime.GOOS)
	line("goarch", runtime.GOARCH)
	line("cpu", fmt.Sprintf("%d x %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name")))
	line("memory", field("/proc/meminfo", "MemTotal:"))
	line("load", field("/proc/loadavg", ""))
	line("kernel", ask("uname", "-r"))
	line("filesystem", ask("stat", "-f", "-c", "%T", os.TempDir()))
	line("go", runtime.Version())
	line("containerd", ask("go", "list", "-C", "../tools", "-m", "-f", "{{.Version}}",
		"github.com/containerd/containerd/v2"))
	line("runc", strings.TrimPrefix(ask("runc", "--version"), "runc version "))
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "KUBELET_BIN":
			line("kubelet", strings.TrimPrefix(ask(value, "--version"), "Kubernetes "))
		case strings.HasPrefix(name, "KUBELETKIT_E2E_") && name != "KUBELETKIT_E2E_RESULTS":
			line(strings.ToLower(strings.TrimPrefix(name, "KUBELETKIT_E2E_")), value)
		}
	}
	return b.String() + "\n"
}

// output returns what the program prints, without line breaks around it.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.Trim(string(out), "\n"), err
}

// comparison runs minikubelet of both commits by turns, and prints the tables: that with the ratios in each round, and
// that of benchstat.
func comparison(ctx context.Context, o options, old, new string) (err error) {
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var binaries [2]string
	for i, commit := range []string{old, new} {
		id, err := output("git", "rev-parse", "--short", commit)
		if err != nil {
			return err
		}
		binaries[i] = filepath.Join(work, id, "minikubelet") // the file of results has the path
		tree := filepath.Join(work, fmt.Sprintf("tree-%d", i))
		if _, err := output("git", "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
			return err
		}
		_, err = output("go", "build", "-C", tree, "-trimpath", "-tags", "grpcnotrace", "-o", binaries[i],
			"./examples/minikubelet")
		_, err2 := output("git", "worktree", "remove", "--force", tree)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil { // also for agents that do not run as root
		return err
	}
	file, failed := run(ctx, o.withDefault("agent,baseline"),
		[]string{"KUBELETKIT_E2E_BASELINE=" + binaries[0], "KUBELETKIT_E2E_AGENT=" + binaries[1]})
	text, err := os.ReadFile(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	// benchstat compares lines of the same name, in two files.
	args := make([]string, 2)
	for i, contestant := range []string{"baseline", "agent"} {
		path := filepath.Join(work, contestant)
		if err := os.WriteFile(path, []byte(linesOf(string(text), contestant)), 0o644); err != nil {
			return err
		}
		args[i] = []string{old, new}[i] + "=" + path
	}
	dir, err := output("../tools/build", "benchstat")
	if err != nil {
		return errors.Join(failed, err)
	}
	table, err := output(filepath.Join(dir, "benchstat"), args...)
	if err != nil {
		return errors.Join(failed, err)
	}
	results, err := parse(string(text))
	fmt.Printf("\n%s\n\n%s%s\n", file, tables(results), table)
	return errors.Join(failed, err)
}
