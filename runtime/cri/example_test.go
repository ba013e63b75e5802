package cri_test

import (
	"context"
	"errors"
	"fmt"

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

// events prints what kubelet would write as Event objects.
type events struct{}

func (events) Event(pod runtime.PodRef, ref, eventType, reason, message string) {
	fmt.Println(eventType, reason, pod.Name, ref, message)
}

func ExampleOptions() {
	rt, err := cri.Dial(context.Background(), "/run/crio/crio.sock", cri.Options{
		Recorder:         events{},
		MaxParallelPulls: 3,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rt.Close())
	// Output: <nil>
}
