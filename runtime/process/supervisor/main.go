// Supervisor is a small program for process.Options.Supervisor: it supervises one container of
// runtime/process, and has none of the packages of the agent.
//
//	go build -o kubeletkit-supervisor github.com/kubeletkit/kubeletkit/runtime/process/supervisor
package main

import (
	"fmt"
	"os"

	_ "github.com/kubeletkit/kubeletkit/runtime/process/early" // supervises, if a server has started this program
)

func main() {
	fmt.Fprintln(os.Stderr, "This program supervises a container; a server of runtime/process starts it.")
	os.Exit(2)
}
