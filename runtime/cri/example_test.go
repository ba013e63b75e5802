package cri_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// Dial does not wait for the runtime: whether it is there is what Check tells.
func ExampleDial() {
	ctx := context.Background()
	rt, err := cri.Dial(ctx, "unix:///nowhere/containerd.sock", cri.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()

	if err := rt.Check(ctx); errors.Is(err, runtime.ErrUnavailable) {
		fmt.Println("not yet")
	}
	// Output: not yet
}

func ExampleOptions() {
	rt, err := cri.Dial(context.Background(), "/run/crio/crio.sock", cri.Options{
		CallTimeout: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rt.Close())
	// Output: <nil>
}
