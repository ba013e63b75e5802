//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// A server in the agent's own process, and the client that any CRI runtime has.
func Example() {
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
	fmt.Println("close:", server.Close()) // containers would go on running
	// Output:
	// check: <nil>
	// close: <nil>
}
