package status_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// printer is a sink that prints.
type printer struct {
	status.SinkBase
	called chan struct{}
}

func (p printer) Deliver(_ context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	fmt.Println(pod.Name, s.Phase, s.PodIP, "restarts:", s.ContainerStatuses[0].RestartCount)
	p.called <- struct{}{}
	return status.Result{}, nil
}

func (p printer) PodGone(_ context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	fmt.Println(pod.Name, "is gone, it was", last.Phase)
	p.called <- struct{}{}
	return nil
}

func Example() {
	sink := printer{called: make(chan struct{})}
	m, err := status.New(status.Options{Sink: sink})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	pod.Spec.Containers = []v1.Container{{Name: "nginx", Image: "nginx"}}
	observed := &runtime.PodStatus{
		IPs: []string{"10.0.0.7"},
		Containers: []runtime.ContainerStatus{{
			Container: runtime.Container{ID: runtime.ContainerID{Type: "containerd", ID: "4f1c"}, Name: "nginx",
				State: runtime.ContainerRunning},
			RestartCount: 2,
		}},
	}
	for range 2 { // the second time nothing has changed
		in := status.Input{Pod: pod, Runtime: observed, Now: time.Now()}
		if prev, ok := m.Get(pod.UID); ok {
			in.Previous = &prev
		}
		m.Set(pod, status.Generate(in))
	}
	<-sink.called

	m.Terminate(pod)
	<-sink.called
	m.Forget(pod.UID)
	<-sink.called

	cancel()
	fmt.Println(<-done)
	// Output:
	// web Running 10.0.0.7 restarts: 2
	// web Failed 10.0.0.7 restarts: 2
	// web is gone, it was Failed
	// <nil>
}
