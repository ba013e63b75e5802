package runtime_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// counting is an inspector that counts its calls.
type counting struct{ calls int }

func (c *counting) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	c.calls++
	return &runtime.PodStatus{
		PodRef:    ref,
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s1", State: runtime.SandboxReady}}},
	}, nil
}

// A caller that has changed a pod draws a mark after the change, and gets a status
// that is newer. A caller that has changed nothing gets the last known status.
func ExampleCache() {
	ctx := context.Background()
	rt := &counting{}
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	shop := runtime.PodRef{UID: "1", Namespace: "default", Name: "shop"}

	status, err := cache.Newer(ctx, shop, 0)
	fmt.Println(status.ReadySandbox().ID, err, rt.calls)

	_, _ = cache.Newer(ctx, shop, 0)
	fmt.Println("known:", rt.calls)

	changed := cache.Now()
	status, _ = cache.Newer(ctx, shop, changed)
	fmt.Println("read again:", rt.calls, status.Mark > changed)
	// Output:
	// s1 <nil> 1
	// known: 1
	// read again: 2 true
}
