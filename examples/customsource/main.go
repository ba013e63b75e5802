// Customsource runs an agent with a source of its own, [Topics]: the manifests of the
// pods are messages of an MQTT-like broker.
//
//	go run ./examples/customsource
//
// The broker and the container runtime are in memory. The program publishes some
// manifests and prints the running pods after each.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "customsource:", err)
		os.Exit(1)
	}
}

func manifestOf(name, image string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %q}, spec: {terminationGracePeriodSeconds: 0, "+
		"containers: [{name: main, image: %q}]}}", name, image)
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "customsource")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rt := fake.New(fake.Options{})
	defer rt.Close()
	broker := NewBroker()
	broker.Publish("nodes/edge-7/pods/web", manifestOf("web", "web:1"))
	broker.Publish("nodes/edge-8/pods/web", manifestOf("web", "web:1"))
	topics := &Topics{Broker: broker, Prefix: "nodes/edge-7/pods/", Problem: func(topic string, err error) {
		fmt.Fprintf(out, "%s: %v\n", topic, err)
	}}
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "edge-7", RootDir: dir, Host: rt.Host(), Runtime: rt, Sources: []podconfig.Source{topics},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return agent.Run(ctx) })
	show := func() {
		time.Sleep(3 * time.Second)
		fmt.Fprintln(out, "pods:")
		for _, pod := range agent.Pods() {
			fmt.Fprintln(out, " ", pod.Name, pod.Spec.Containers[0].Image, pod.Status.Phase)
		}
	}
	show()
	broker.Publish("nodes/edge-7/pods/db", manifestOf("db", "db:1"))
	broker.Publish("nodes/edge-7/pods/web", manifestOf("web", "web:2"))
	show()
	broker.Publish("nodes/edge-7/pods/db", "{apiVersion: v1, kind: Pod, spek: {}}")
	broker.Publish("nodes/edge-7/pods/web", "")
	show()
	stop()
	return g.Wait()
}
