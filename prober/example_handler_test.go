package prober_test

import (
	"context"
	"fmt"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// portHandler is a [prober.Handler] for pods with an annotation: they are ready when
// something listens on the port in it.
type portHandler struct{}

const annotation = "example.com/ready-port"

func (portHandler) Name() string { return "port" }

func (portHandler) Probe(pod *v1.Pod, _ *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	if kind != runtime.ReadinessProbe || pod.Annotations[annotation] == "" {
		return nil
	}
	return &v1.Probe{PeriodSeconds: 5, TimeoutSeconds: 2}
}

func (portHandler) Check(ctx context.Context, t prober.Target) (prober.Outcome, string, error) {
	address, err := t.HostPort("", intstr.Parse(t.Pod.Annotations[annotation]))
	if err != nil {
		return prober.Unknown, "", err // says nothing about the container
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return prober.Failure, err.Error(), nil
	}
	_ = conn.Close()
	return prober.Success, "something listens", nil
}

// onePod is a runtime in which one container runs.
type onePod struct{ id runtime.ContainerID }

func (o onePod) Get(types.UID) (*runtime.PodStatus, bool) {
	return &runtime.PodStatus{Containers: []runtime.ContainerStatus{{
		Container: runtime.Container{ID: o.id, Name: "main", State: runtime.ContainerRunning},
	}}}, true
}

func (onePod) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	return runtime.ExecResult{}, nil
}

func ExampleHandler() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())

	rt := onePod{runtime.ContainerID{Type: "containerd", ID: "4f1c"}}
	m, err := prober.New(rt, rt, prober.Options{
		Handlers: []prober.Handler{portHandler{}},
		Jitter:   func() float64 { return 0 },
	})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "db", "default", "1234"
	pod.Annotations = map[string]string{annotation: port}
	pod.Spec.HostNetwork = true
	pod.Spec.Containers = []v1.Container{{Name: "main"}} // without a probe in the spec
	m.AddPod(pod)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	r := <-m.Results()
	fmt.Println(r.Pod, r.Container, r.Kind, r.Healthy, r.Message)
	cancel()
	fmt.Println(<-done)
	// Output:
	// default/db(1234) main readiness true something listens
	// <nil>
}
