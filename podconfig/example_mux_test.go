package podconfig_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

// order is what a broker sends: a pod that is wanted from now on, or the UID of one
// that is not.
type order struct {
	start *v1.Pod
	stop  types.UID
}

// broker is a control plane that speaks of one pod at a time.
type broker struct {
	known  []*v1.Pod // before it speaks
	orders chan order
}

func (broker) Name() string { return "broker" }

func (b broker) Run(ctx context.Context, sink podconfig.Sink) error {
	sink.Set(b.known)
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-b.orders:
			if o.start != nil {
				sink.Apply(podconfig.Delta{Update: []*v1.Pod{o.start}})
			} else {
				sink.Apply(podconfig.Delta{Remove: []types.UID{o.stop}})
			}
		}
	}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

func show(c podconfig.Change) {
	fmt.Print(c.Op, " ", c.Source)
	for _, p := range c.Pods {
		fmt.Print(" ", p.Name)
	}
	fmt.Println()
}

// A source that hears of single pods.
func ExampleSink() {
	b := broker{known: []*v1.Pod{pod("web")}, orders: make(chan order)}
	mux, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{b}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()

	show(<-mux.Changes())
	b.orders <- order{start: pod("db")}
	show(<-mux.Changes())
	b.orders <- order{stop: "uid-web"}
	show(<-mux.Changes())

	cancel()
	fmt.Println(<-done)
	// Output:
	// ADD broker web
	// ADD broker db
	// REMOVE broker web
	// <nil>
}

// A source that comes while the mux runs, and goes again.
func ExampleMux_Add() {
	mux, err := podconfig.New(podconfig.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	fmt.Println("all seen:", mux.AllSeen())

	if err := mux.Add(broker{known: []*v1.Pod{pod("web")}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("all seen:", mux.AllSeen(), mux.Sources())
	show(<-mux.Changes())

	mux.Remove("broker") // returns when it has ended
	show(<-mux.Changes())

	cancel()
	fmt.Println(<-done)
	// Output:
	// all seen: true
	// all seen: false [{broker false}]
	// ADD broker web
	// REMOVE broker web
	// <nil>
}
