package prober_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// oneContainer is a runtime with one running container in which all commands
// succeed.
type oneContainer struct{ status runtime.PodStatus }

func (o *oneContainer) Get(types.UID) (*runtime.PodStatus, bool) { return &o.status, true }

func (o *oneContainer) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	return runtime.ExecResult{Output: []byte("accepting connections")}, nil
}

func Example() {
	id := runtime.ContainerID{Type: "containerd", ID: "4f1c"}
	rt := &oneContainer{status: runtime.PodStatus{Containers: []runtime.ContainerStatus{{
		Container: runtime.Container{ID: id, Name: "db", State: runtime.ContainerRunning},
		StartedAt: time.Now().Add(time.Hour), // after Run has begun
	}}}}
	m, err := prober.New(rt, rt, prober.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "db-0", "default", "1234"
	pod.Spec.Containers = []v1.Container{{Name: "db", ReadinessProbe: &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"pg_isready"}}},
	}}}
	m.AddPod(pod)

	r := <-m.Results()
	fmt.Println(r.Pod, r.Container, r.Kind, r.Healthy, r.Message)
	fmt.Println(m.Ready(id))

	cancel()
	fmt.Println(<-done)
	// Output:
	// default/db-0(1234) db readiness true accepting connections
	// true
	// <nil>
}
