package node_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A node with a condition of its own. A real one has the client of an API server.
func Example() {
	door := func(context.Context) []v1.NodeCondition {
		return []v1.NodeCondition{{Type: "example.com/DoorOpen", Status: v1.ConditionFalse, Reason: "Shut",
			Message: "the door is shut"}}
	}
	n, err := node.New(apitest.NewClientset(), "edge-7", node.Options{
		Labels:     map[string]string{"site": "north"},
		Conditions: []func(context.Context) []v1.NodeCondition{door},
		Runtime:    func() runtime.Features { return runtime.Features{Name: "containerd", Version: "v2.1.4"} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	if err := n.Registered(ctx); err != nil {
		fmt.Println(err)
		return
	}
	registered := n.Current()
	fmt.Println(registered.Name, registered.Labels["site"], registered.Status.NodeInfo.ContainerRuntimeVersion)
	for _, c := range registered.Status.Conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// edge-7 north containerd://v2.1.4
	// MemoryPressure False KubeletHasSufficientMemory
	// DiskPressure False KubeletHasNoDiskPressure
	// PIDPressure False KubeletHasSufficientPID
	// example.com/DoorOpen False Shut
	// Ready True KubeletReady
	// <nil>
}
