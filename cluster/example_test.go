package cluster_test

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent that is a node of a cluster. The credentials of a real one come from package
// credentials, and its runtime from runtime/cri.
func Example() {
	rt := fake.New(fake.Options{})
	defer rt.Close()
	member, err := cluster.New(cluster.Config{
		NodeName: "edge-7",
		REST:     &rest.Config{Host: "https://192.0.2.1:6443"},
		Node:     node.Options{Labels: map[string]string{"site": "north"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	opts := kubeletkit.Options{NodeName: "edge-7", RootDir: "/var/lib/edge-agent", Runtime: rt}
	if err := member.Configure(&opts); err != nil {
		fmt.Println(err)
		return
	}
	for _, source := range opts.Sources {
		fmt.Println("source", source.Name())
	}
	for _, component := range opts.Join {
		fmt.Println("component", component.Name())
	}
	// err = kubeletkit.Run(ctx, opts)

	// Output:
	// source api
	// component node
	// component cluster
}

func ExampleNew_errors() {
	_, err := cluster.New(cluster.Config{})
	fmt.Println(err)
	// Output:
	// cluster: Config.NodeName is required
	// Config.REST is required; package credentials makes it from a kubeconfig
}
