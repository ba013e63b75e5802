// Sourcesink is an agent with a source and a sink of its own. The source has one pod, and the sink prints the statuses
// of it. The containers are processes of this machine, so it needs nothing installed, and no root:
//
//	go run ./examples/sourcesink
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/status"
)

const job = `{apiVersion: v1, kind: Pod, metadata: {name: job}, spec: {restartPolicy: Never,
  containers: [{name: main, image: host, command: [sleep, "1"]}]}}`

func main() {
	process.Init() // first: the runtime executes this program again for each container
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rt, err := process.Start(ctx, process.Options{Dir: dir + "/process"})
	if err != nil {
		return err
	}
	defer rt.Close()
	return kubeletkit.Run(ctx, kubeletkit.Options{
		NodeName: "edge-7", RootDir: dir, Runtime: rt,
		Sources: []podconfig.Source{manifest.NewStatic("jobs", job)}, // podconfig.SourceFunc makes one of a function
		StatusSink: status.SinkFunc(func(_ context.Context, pod *v1.Pod, st v1.PodStatus) error {
			fmt.Println(pod.Name, st.Phase)
			if st.Phase == v1.PodSucceeded {
				stop()
			}
			return nil
		}),
	})
}
