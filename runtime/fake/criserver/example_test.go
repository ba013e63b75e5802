package criserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client finds the pods of the fake at a socket, as it would find those of
// containerd.
func ExampleServe() {
	dir, _ := os.MkdirTemp("", "cri")
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return
	}

	rt := fake.New(fake.Options{})
	if err := rt.Seed(fake.Pods(2, 1)...); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error)
	go func() { served <- criserver.Serve(ctx, rt, listener) }()

	client, err := cri.Dial(ctx, "unix://"+socket, cri.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := client.ListPods(ctx)
	for _, pod := range pods {
		fmt.Println(pod.PodRef)
	}
	fmt.Println(err, client.Close())
	stop()
	fmt.Println(<-served)
	// Output:
	// default/pod-0(00000000-0000-4000-8000-000000000000)
	// default/pod-1(00000000-0000-4000-8000-000000000001)
	// <nil> <nil>
	// <nil>
}
