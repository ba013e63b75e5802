package fake_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A container crashes once, and the first attempt to start it again fails because the
// runtime does not answer.
func Example() {
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	rt := fake.New(fake.Options{Dir: dir, Images: []string{"image:1"}})
	pod := fake.Pods(1, 1)[0] // "pod-0" with container "c0" of image "image:1"
	target := fake.Target{Pod: pod.Name}
	rt.Script(target, fake.Times(1, fake.Exits(time.Millisecond, 3))...)
	rt.Inject(fake.Fault{Call: "StartContainer", Target: target, Skip: 1, Times: 1, Err: runtime.ErrUnavailable})

	_, err = rt.Sync(ctx, pod)
	fmt.Println("first:", err)
	err = rt.UntilStopped(ctx, fake.Target{Pod: pod.Name, Container: "c0"})
	fmt.Println("crashed:", err)
	_, err = rt.Sync(ctx, pod)
	fmt.Println("second:", err)
	for _, line := range rt.Transcript(target) {
		fmt.Println(line)
	}
	// Output:
	// first: <nil>
	// crashed: <nil>
	// second: pod default/pod-0(00000000-0000-4000-8000-000000000000), container c0: RunContainerError: StartContainer: container runtime unavailable
	// RunPodSandbox default/pod-0
	// CreateContainer default/pod-0/c0
	// StartContainer default/pod-0/c0
	// CreateContainer default/pod-0/c0
	// StartContainer default/pod-0/c0: Unavailable
}
