// Custompleg replaces the PLEG of the agent by [Hinted], which relists when the runtime's
// event stream delivers something, and otherwise every ten minutes only.
//
//	go run ./examples/custompleg
//
// It runs one crashing pod on a runtime in memory. It prints the number of list calls, the
// number of exits in the history of the pod, and the delay of each restart.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func main() {
	if err := run(context.Background(), os.Stdout, 6*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "custompleg:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, length time.Duration) error {
	dir, err := os.MkdirTemp("", "custompleg")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rt := fake.New(fake.Options{Behavior: func(fake.Container) fake.Behavior { return fake.Exits(time.Second, 1) },
		CRI: cri.Options{Backoff: plan.Backoff{Initial: time.Millisecond, Max: time.Millisecond}}})
	defer rt.Close()
	source := podconfigfake.NewSource("demo")
	source.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}}})
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: dir, Host: rt.Host(), Runtime: rt, Sources: []podconfig.Source{source},
		GC: gc.Options{Policy: gc.Policy{MaxPerContainer: 100}},
		Override: kubeletkit.Overrides{PLEG: func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
			opts := p.PLEGOptions.Options // with the history, metrics and logger of the agent
			opts.RelistPeriod = 10 * time.Minute
			return &Hinted{Generic: pleg.NewGeneric(p.Runtime, p.Cache, opts), Events: rt}, nil
		}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	err = agent.Run(ctx)
	instances, lists := rt.Instances(fake.Target{}), 0
	for _, c := range rt.Calls(fake.Target{}) {
		if c.Pod.UID == "" && (c.Method == "ListContainers" || c.Method == "StreamContainers") {
			lists++
		}
	}
	fmt.Fprintf(out, "%d lists in %s\n", lists, length)
	seen := 0
	for _, e := range agent.Parts().History.Entries("1") {
		if e.Kind == runtime.KindContainerExited {
			seen++
		}
	}
	fmt.Fprintf(out, "the history has %d exits\n", seen)
	for i := 1; i < len(instances); i++ {
		late := instances[i].StartedAt.Sub(instances[i-1].FinishedAt).Round(time.Millisecond)
		fmt.Fprintf(out, "instance %d started %s after the end of the one before\n", instances[i].Attempt, late)
	}
	return err
}
