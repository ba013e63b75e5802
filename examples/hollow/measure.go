package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// usage is the resource usage of the process.
type usage struct {
	// heap is the live heap after a collection, stacks the memory of goroutine stacks,
	// both in bytes.
	heap, stacks uint64
	goroutines   int
}

func measure() usage {
	// The second collection frees objects whose finalizers the first has run.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{heap: m.HeapAlloc, stacks: m.StackInuse, goroutines: runtime.NumGoroutine()}
}

// report prints the cost of the agents.
func report(out io.Writer, s settings, took time.Duration, before, after usage) {
	per := func(before, after uint64) float64 {
		return (float64(after) - float64(before)) / float64(max(s.agents, 1)) / 1024
	}
	heap, stacks := per(before.heap, after.heap), per(before.stacks, after.stacks)
	fmt.Fprintf(out, "%d agents with %d pods each: all pods running after %s\n", s.agents, s.pods,
		took.Round(10*time.Millisecond))
	fmt.Fprintf(out,
		"memory for each agent: %.0f KiB (heap %.0f KiB, stacks %.0f KiB), its runtime and %d pods included\n",
		heap+stacks, heap, stacks, s.pods)
	fmt.Fprintf(out, "goroutines for each agent: %.1f\n",
		float64(after.goroutines-before.goroutines)/float64(max(s.agents, 1)))
}

func writeHeapProfile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
