// Compose wires a node agent by hand from the packages, without the type
// kubeletkit.Agent: for embedders that need another composition than the one which
// kubeletkit.Options can express. [New] is the whole wiring.
//
//	go run ./examples/compose
//
// It runs one pod on a runtime in memory and prints its phases.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	root, err := os.MkdirTemp("", "compose")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("demo")
	defer rt.Close()
	node, err := New(Options{NodeName: "node", RootDir: root, Runtime: rt, Sources: []podconfig.Source{source},
		Host: rt.Host()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1) // one value, of the one goroutine
	go func() { done <- node.Run(ctx) }()

	source.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}}})
	err = errors.New("the pod did not run within a minute")
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		if pods := node.Pods(); len(pods) == 1 && pods[0].Status.Phase == v1.PodRunning {
			fmt.Fprintf(out, "pod %s is %s\n", pods[0].Name, pods[0].Status.Phase)
			err = nil
			break
		}
	}
	cancel()
	return errors.Join(err, <-done)
}
