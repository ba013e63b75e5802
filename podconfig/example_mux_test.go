package podconfig_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox"}}}, // the mux sets defaults
	}
}

func show(c podconfig.Change) {
	fmt.Print(c.Op, " ", c.Source)
	for _, p := range c.Pods {
		fmt.Print(" ", p.Name)
	}
	fmt.Println()
}

// Two sources are merged: pods that never change, and snapshots from a channel.
func Example() {
	snapshots := make(chan []*v1.Pod)
	mux, err := podconfig.New(podconfig.Options{
		NodeName: "edge-7",
		Sources: []podconfig.Source{podconfig.NewStatic("builtin", pod("dns")),
			podconfig.NewChannel("broker", snapshots)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()

	show(<-mux.Changes())
	snapshots <- []*v1.Pod{pod("web"), pod("db")}
	show(<-mux.Changes())
	snapshots <- []*v1.Pod{pod("db"), pod("cache")}
	show(<-mux.Changes())
	show(<-mux.Changes())

	cancel()
	fmt.Println(<-done)
	// Output:
	// ADD builtin dns
	// ADD broker web db
	// REMOVE broker web
	// ADD broker cache
	// <nil>
}

// broker is a control plane that sends changes of single pods.
type broker struct {
	first  []*v1.Pod // its pods at the start
	deltas chan podconfig.Delta
}

func (broker) Name() string { return "broker" }

func (b broker) Run(ctx context.Context, sink podconfig.Sink) error {
	sink.Set(b.first)
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-b.deltas:
			sink.Apply(d)
		}
	}
}

// A source that delivers a snapshot and then changes of single pods.
func ExampleSink() {
	b := broker{first: []*v1.Pod{pod("web")}, deltas: make(chan podconfig.Delta)}
	mux, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{b}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()

	show(<-mux.Changes())
	b.deltas <- podconfig.Delta{Update: []*v1.Pod{pod("db")}}
	show(<-mux.Changes())
	b.deltas <- podconfig.Delta{Update: []*v1.Pod{pod("cache")}, Remove: []types.UID{"uid-web"}}
	show(<-mux.Changes())
	show(<-mux.Changes())

	cancel()
	fmt.Println(<-done)
	// Output:
	// ADD broker web
	// ADD broker db
	// REMOVE broker web
	// ADD broker cache
	// <nil>
}

// A source is added while the mux runs, and removed again.
func ExampleMux_Add() {
	mux, err := podconfig.New(podconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	fmt.Println("all seen:", mux.SourcesReady())

	if err := mux.Add(broker{first: []*v1.Pod{pod("web")}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("all seen:", mux.SourcesReady(), mux.Sources()[0].Name, mux.Sources()[0].Seen)
	show(<-mux.Changes())

	mux.Remove("broker") // returns when its Run has returned
	show(<-mux.Changes())

	cancel()
	fmt.Println(<-done)
	// Output:
	// all seen: true
	// all seen: false broker false
	// ADD broker web
	// REMOVE broker web
	// <nil>
}
