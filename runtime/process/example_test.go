//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// The runtime of an agent. The program calls process.Init first in main.
func Example() {
	dir, err := os.MkdirTemp("", "process")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	rt, err := process.Start(ctx, process.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	fmt.Println("check:", rt.Check(ctx))
	fmt.Println("close:", rt.Close()) // containers would go on running
	// Output:
	// check: <nil>
	// close: <nil>
}

// A server for a client of one's own, as any CRI runtime has.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "process")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	server, err := process.Open(ctx, process.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	rt, err := cri.Dial(ctx, server.Endpoint(), cri.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("check:", rt.Check(ctx))
	_ = rt.Close()
	fmt.Println("close:", server.Close())
	// Output:
	// check: <nil>
	// close: <nil>
}
