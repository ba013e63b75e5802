package checkpoint_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// A pod that was kept is restored in the next run of the agent.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "8a1d"},
		Spec:       v1.PodSpec{NodeName: "edge-7", Containers: []v1.Container{{Name: "web", Image: "nginx:1.29"}}},
	}
	manifest.SetDefaults(pod)

	for range 2 {
		store, err := checkpoint.New(dir, checkpoint.Options{})
		if err != nil {
			panic(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		fmt.Println("restored:", len(store.Load(ctx)))
		done := make(chan error)
		go func() { done <- store.Run(ctx) }()
		store.Keep(pod)
		stop()
		if err := <-done; err != nil {
			panic(err)
		}
	}
	// Output:
	// restored: 0
	// restored: 1
}
