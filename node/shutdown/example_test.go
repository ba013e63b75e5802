package shutdown_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/shutdown/fake"
)

func podOf(name string, priority int32) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Priority: &priority}}
	pod.Name = name
	pod.UID = types.UID("uid-" + name)
	return pod
}

func ExamplePeriods_Groups() {
	periods := shutdown.Classes(30*time.Second, 10*time.Second)
	fmt.Println("the machine has to wait", periods.Total())
	for _, g := range periods.Groups([]*v1.Pod{podOf("dns", 2_000_000_000), podOf("web", 0)}) {
		for _, pod := range g.Pods {
			fmt.Println(pod.Name, "has", g.GracePeriod)
		}
	}
	// Output:
	// the machine has to wait 30s
	// web has 20s
	// dns has 10s
}

// The machine goes on when the pods have ended.
func ExampleManager() {
	machine := fake.NewLogind("") // logind.New(logind.Options{}) is the real one
	node := nodefake.NewNode(podOf("dns", 2_000_000_000), podOf("web", 0))
	manager, err := shutdown.New(shutdown.Classes(5*time.Second, 2*time.Second), machine, shutdown.Options{})
	if err != nil {
		panic(err)
	}
	if err := manager.Join(node); err != nil { // New of an agent does this
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx) }() // an agent does this
	if err := machine.UntilLocked(ctx); err != nil {
		panic(err)
	}

	fmt.Println("goes on:", machine.Shutdown())
	for _, end := range node.Ends() {
		fmt.Println(end.Pod, "had", end.GracePeriod, "s")
	}
	fmt.Println(manager.NodeReady())
	cancel()
	<-done
	// Output:
	// goes on: true
	// web had 3 s
	// dns had 2 s
	// node is shutting down
}
