package swap_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/swap"
)

func Example() {
	limiter, err := swap.New(swap.Options{
		Behavior: swap.LimitedSwap,
		Machine:  func() (swap.Machine, error) { return swap.Machine{Memory: 32 << 30, Swap: 8 << 30}, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name:      "java",
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi")}},
	}}}}
	// The agent calls this when it creates the container.
	edits, err := limiter.EditContainer(context.Background(), pod, &pod.Spec.Containers[0])
	fmt.Println(*edits.MemorySwap>>20, "MiB", err)
	// Output: 1024 MiB <nil>
}
