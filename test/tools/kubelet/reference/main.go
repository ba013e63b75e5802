// Command reference prints what the code of kubelet makes of its input, as JSON, for tests that compare:
//
//	reference checkpoints|gates|manifests|names|paths|uids [ARGUMENT]...
//
// Each subcommand has a file of its name, which says what it reads and prints.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	commands := map[string]func(args []string) (any, error){
		"checkpoints": checkpoints, "gates": gates, "manifests": manifests, "names": names, "paths": paths,
		"uids": uids,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: reference checkpoints|gates|manifests|names|paths|uids [ARGUMENT]...")
		os.Exit(2)
	}
	result, err := commands[os.Args[1]](os.Args[2:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
