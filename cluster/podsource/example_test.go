package podsource_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
)

// printer is a podconfig.Sink that prints. Agents pass the source in their options, and the mux
// is the sink.
type printer struct {
	podconfig.SinkBase
	done func()
}

func (printer) Set(pods []*v1.Pod) {
	for _, pod := range pods {
		fmt.Println("there is", pod.Name)
	}
}

func (p printer) Apply(d podconfig.Delta) {
	for _, pod := range d.Update {
		fmt.Println("changed:", pod.Name)
	}
	fmt.Println("removed:", d.Remove)
	p.done()
}

func Example() {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-of-" + "pod",
				ResourceVersion: "7"},
			Spec: v1.PodSpec{NodeName: "edge-7"},
		}
	}
	client := apitest.NewClientset(pod("web"))
	src, err := podsource.New(client, "edge-7", podsource.Options{
		Observers: []func(podsource.Change){func(c podsource.Change) {
			if c.Complete { // from here on the pods are watched
				time.AfterFunc(100*time.Millisecond, func() {
					_ = client.CoreV1().Pods("default").Delete(context.Background(), "web", metav1.DeleteOptions{})
				})
			}
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	_ = src.Run(ctx, printer{done: cancel})
	// Output:
	// there is web
	// removed: [uid-of-pod]
}
