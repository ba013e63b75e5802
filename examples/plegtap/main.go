// Plegtap is an agent whose PLEG has a tap: a function that receives the events of all pods beside the agent.
//
//	go run ./examples/plegtap
//
// It runs a pod that crashes each second on a runtime in memory, for 4 seconds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rt := fake.New(fake.Options{Behavior: func(fake.Container) fake.Behavior { return fake.Exits(time.Second, 1) }})
	defer rt.Close()
	return kubeletkit.Run(ctx, kubeletkit.Options{
		NodeName: "node", RootDir: dir, Runtime: rt, Host: rt.Host(),
		Sources: []podconfig.Source{podconfig.NewStatic("demo", fake.Pods(1, 1)...)},
		Override: kubeletkit.Overrides{PLEG: kubeletkit.Wrap(func(g pleg.Generator) pleg.Generator {
			return pleg.Tap(g, func(pod pleg.PodEvents) {
				for _, event := range pod.Events {
					fmt.Println(pod.Pod.Name, event.Name, event.Type)
				}
			})
		})},
	})
}
