package gc_test

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/gc/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A runtime holds a pod that has crashed twice and one that is gone.
func Example() {
	dead := func(id, name, sandbox string) runtime.Container {
		return runtime.Container{ID: runtime.ContainerID{Type: "fake", ID: id}, Name: name, SandboxID: sandbox,
			State: runtime.ContainerExited}
	}
	rt := fake.NewRuntime(
		&runtime.Pod{
			PodRef:    runtime.PodRef{UID: "1", Namespace: "default", Name: "web"},
			Sandboxes: []runtime.Sandbox{{ID: "s1", State: runtime.SandboxReady}},
			// the newest first
			Containers: []runtime.Container{dead("main-2", "main", "s1"), dead("main-1", "main", "s1")},
		},
		&runtime.Pod{
			PodRef:     runtime.PodRef{UID: "2", Namespace: "default", Name: "old"},
			Sandboxes:  []runtime.Sandbox{{ID: "s2", State: runtime.SandboxNotReady}},
			Containers: []runtime.Container{dead("old-1", "main", "s2")},
		},
	)
	gone := func(uid types.UID) bool { return uid == "2" }
	collector, err := gc.New(rt, gone, gc.Options{Parallel: 1})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { fmt.Println("ended:", collector.Run(ctx)) })
	collector.Kick()
	if _, err := rt.UntilCalled(ctx, fake.RemoveSandbox, "2"); err != nil {
		fmt.Println(err)
	}
	cancel()
	run.Wait()
	for _, call := range rt.Transcript("") {
		fmt.Println(call)
	}
	// Output:
	// ended: <nil>
	// ListPods
	// RemoveContainer default/web main-1
	// RemoveContainer default/old old-1
	// RemoveSandbox default/old s2
}
