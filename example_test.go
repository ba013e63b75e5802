package kubeletkit_test

import (
	"context"
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

const web = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: registry.example/web:1
`

// An agent runs one pod; here the runtime is a fake.
func Example() {
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	pods, err := manifest.Load([]byte(web), manifest.Options{NodeName: "edge-7"})
	if err != nil {
		panic(err)
	}
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "edge-7",
		RootDir:  root,
		Runtime:  fake.New(fake.Options{}), // cri.Dial returns the real one
		Sources:  []podconfig.Source{podconfig.NewStatic("builtin", pods...)},
	})
	if err != nil {
		panic(err)
	}
	report, err := agent.RunOnce(context.Background()) // agent.Run does not stop by itself
	fmt.Print(report)
	fmt.Println(err)
	// Output:
	// default/web-edge-7: Running
	// <nil>
}
