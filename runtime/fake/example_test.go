package fake_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A container crashes once, and the first attempt to start it again meets a
// runtime that does not answer.
func Example() {
	dir, _ := os.MkdirTemp("", "fake")
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	rt := fake.New(fake.Options{Dir: dir, Images: []string{"image:1"}})
	web := fake.Target{Pod: "web"}
	rt.Script(web, fake.Times(1, fake.Exits(time.Millisecond, 3))...)
	rt.Inject(fake.Fault{Call: "StartContainer", Target: web, Skip: 1, Times: 1, Err: runtime.ErrUnavailable})

	pod := makePod("web", "main")
	_, err := rt.Sync(ctx, pod)
	fmt.Println("first:", err)
	err = rt.UntilStopped(ctx, fake.Target{Pod: "web", Container: "main"})
	fmt.Println("crashed:", err)
	_, err = rt.Sync(ctx, pod)
	fmt.Println("second:", err)
	for _, line := range rt.Transcript(web) {
		fmt.Println(line)
	}
	// Output:
	// first: <nil>
	// crashed: <nil>
	// second: pod default/web(uid-web), container main: RunContainerError: StartContainer: container runtime unavailable
	// RunPodSandbox default/web
	// CreateContainer default/web/main
	// StartContainer default/web/main
	// CreateContainer default/web/main
	// StartContainer default/web/main: Unavailable
}
