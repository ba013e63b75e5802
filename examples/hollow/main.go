// Hollow runs many agents in one process, each with pods on a runtime in memory, to load
// programs that watch nodes, and to measure the cost of an agent.
//
//	go run ./examples/hollow -agents 300
//	go run ./examples/hollow -agents 300 -pods 0 -stay 1h -kubeconfig admin.conf
//	go run ./examples/hollow -agents 50 -pods 100 -run-for 30s -stay 10m -listen 127.0.0.1:8080
//
// With -kubeconfig the agents are nodes of a cluster, with the label hollow=true, and run the
// pods that are bound to them. -pods is then the number of pods on each node, on average, that
// is waited for before the report.
//
// With -listen the read-only API of each agent is under /<node>/, as in
// http://127.0.0.1:8080/hollow-7/pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // nearly all of the heap stays: what waits for a collection is most of the rest
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := parse(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "hollow:", err)
		os.Exit(1)
	}
}

func parse(ctx context.Context, args []string) error {
	var s settings
	flags := flag.NewFlagSet("hollow", flag.ContinueOnError)
	flags.IntVar(&s.agents, "agents", 100, "number of agents")
	flags.IntVar(&s.pods, "pods", 10, "number of pods of each agent")
	flags.DurationVar(&s.runFor, "run-for", 0, "time after which each container crashes; 0: never")
	flags.DurationVar(&s.stay, "stay", 0, "time to continue after the report")
	flags.StringVar(&s.listen, "listen", "", "address to serve the agents' read-only API on")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "credentials for a cluster that the agents are nodes of; they "+
		"must allow all that nodes do")
	flags.StringVar(&s.heapProfile, "heap-profile", "", "file to write a heap profile to, with the report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Long enough for the first relists and syncs after the start to end.
	s.settle = 3 * time.Second
	return run(ctx, os.Stdout, s)
}
