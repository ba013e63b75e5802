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
	server, err := process.New(process.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()

	<-server.Ready()
	rt, err := cri.Dial(ctx, server.Endpoint(), cri.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("check:", rt.Check(ctx))
	_ = rt.Close()
	cancel() // containers would go on running
	fmt.Println("run:", <-done)
	// Output:
	// check: <nil>
	// run: <nil>
}
