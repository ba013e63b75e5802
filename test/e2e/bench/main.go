// Bench runs the benchmarks of test/e2e, each in a process of its own, and writes a file with the results. It has a
// line for each round and contestant in the format of Go's benchmarks, which benchstat reads, and before them lines of
// the commit, the date and the machine.
//
//	go run ./bench -o DIR                     run, and print the tables
//	go run ./bench -o DIR -plot FILE...       write a page with the tables and pictures of results
//	go run ./bench -o DIR -compare OLD NEW    run minikubelet of two commits by turns, and print benchstat's table
//
// It needs root, and in the current directory test/e2e of the repository.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// options are the flags. only and pods are lists with commas.
type options struct {
	dir, only, pods, contestants string
	rounds                       int
}

func main() {
	var o options
	flag.StringVar(&o.dir, "o", ".", "the `directory` of the files")
	flag.StringVar(&o.only, "only", "ColdStart,Restart,Removal,Idle,Writes,Boot,Node,NodeIdle,Volumes,Turnover,Resize",
		"`names` of benchmarks of test/e2e")
	flag.StringVar(&o.pods, "pods", "", "`numbers` of pods, as in 10,100; those of each benchmark by default")
	flag.StringVar(&o.contestants, "contestants", "",
		"`names` of contestants, as in bare,agent; all by default, and agent and baseline with -compare")
	flag.IntVar(&o.rounds, "rounds", 3, "the `number` of rounds; benchstat needs 4 to tell a difference from noise, and 6 to state the noise")
	compare := flag.Bool("compare", false, "compare two commits")
	plot := flag.Bool("plot", false, "write a page of files with results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	err := fmt.Errorf("see -help")
	switch args := flag.Args(); {
	case *plot && !*compare && len(args) > 0:
		err = page(o.dir, args)
	case *compare && !*plot && len(args) == 2:
		err = comparison(ctx, o, args[0], args[1])
	case !*plot && !*compare && len(args) == 0:
		err = runAll(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runAll runs the benchmarks with the agent of this tree, and prints the tables.
func runAll(ctx context.Context, o options) error {
	var env []string
	if os.Getenv("KUBELET_BIN") == "" && (o.contestants == "" || has(o.contestants, "kubelet")) {
		dir, err := output("../tools/build", "kubelet")
		if err != nil {
			return err
		}
		env = append(env, "KUBELET_BIN="+filepath.Join(dir, "kubelet"))
	}
	file, failed := run(ctx, o, env)
	text, err := os.ReadFile(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	results, err := parse(string(text))
	fmt.Printf("\n%s\n\n%s", file, tables(results))
	return errors.Join(failed, err)
}

// page writes results.md, with the tables of the files, and the pictures beside it. Results of a benchmark with a
// number of pods replace those in earlier files.
func page(dir string, files []string) error {
	var b strings.Builder
	b.WriteString("# Results\n\n`go run ./bench -plot` has written this page. " + legend + "\n")
	all := results{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n```\n%s```\n", config(string(text)))
		more, err := parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		maps.DeleteFunc(all, func(old key, _ map[string][]float64) bool {
			for k := range more {
				if k.benchmark == old.benchmark && k.pods == old.pods {
					return true
				}
			}
			return false
		})
		maps.Copy(all, more)
	}
	if len(all) == 0 {
		return errors.New("the files have no results")
	}
	for _, chart := range charts {
		if lines := chart.lines(all); len(lines) > 0 {
			if err := os.WriteFile(filepath.Join(dir, chart.file), chart.svg(lines), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(&b, "\n![%s](%s)\n", chart.title, chart.file)
		}
	}
	b.WriteString("\n" + tables(all))
	return os.WriteFile(filepath.Join(dir, "results.md"), []byte(b.String()), 0o644)
}

// has reports whether the list with commas has the name.
func has(list, name string) bool { return strings.Contains(","+list+",", ","+name+",") }

// withDefault returns the options with these contestants, unless it has some.
func (o options) withDefault(contestants string) options {
	o.contestants = cmp.Or(o.contestants, contestants)
	return o
}
