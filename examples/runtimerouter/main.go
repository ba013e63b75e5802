// Runtimerouter runs an agent on several container runtimes, see [Router]:
//
//	go run ./examples/runtimerouter
//	go run ./examples/runtimerouter -default unix:///run/containerd/containerd.sock -class vm=unix:///run/kata.sock -manifests /etc/pods
//
// Without sockets it runs two pods on runtimes in memory, and prints where they run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtimerouter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("runtimerouter", flag.ContinueOnError)
	endpoint := flags.String("default", "", "socket of the default runtime")
	manifests := flags.String("manifests", "/etc/kubernetes/manifests", "directory of pod manifests")
	router := &Router{ByClass: map[string]runtime.Runtime{}}
	flags.Func("class", "class=socket of another runtime; may be repeated", func(v string) error {
		class, socket, _ := strings.Cut(v, "=")
		rt, err := cri.Dial(ctx, socket, cri.Options{})
		router.ByClass[class] = rt
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *endpoint == "" {
		return demo(ctx, out)
	}
	rt, err := cri.Dial(ctx, *endpoint, cri.Options{})
	if err != nil {
		return err
	}
	router.Default = rt
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", Runtime: router, Sources: []podconfig.Source{file.New(*manifests, file.Options{})},
	})
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// demo starts two pods, one on each of two runtimes in memory.
func demo(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "runtimerouter")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	containers := fake.New(fake.Options{Name: "containers", IDPrefix: "c-"})
	machines := fake.New(fake.Options{Name: "machines", IDPrefix: "m-"})
	source := podconfigfake.NewSource("demo")
	source.Set(makePod("web", nil), makePod("untrusted", new("vm")))
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: dir, Host: containers.Host(),
		Runtime: &Router{Default: containers, ByClass: map[string]runtime.Runtime{"vm": machines}},
		Sources: []podconfig.Source{source},
	})
	if err != nil {
		return err
	}
	report, err := agent.RunOnce(ctx)
	fmt.Fprint(out, report)
	for _, i := range containers.Running(fake.Target{}) {
		fmt.Fprintln(out, "containers:", i.String())
	}
	for _, i := range machines.Running(fake.Target{}) {
		fmt.Fprintln(out, "machines:", i.String())
	}
	return err
}

func makePod(name string, class *string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       v1.PodSpec{RuntimeClassName: class, Containers: []v1.Container{{Name: "main", Image: "image:1"}}},
	}
}
