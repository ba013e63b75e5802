package plan_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// A container that has crashed for the second time waits before it is started
// again.
func ExampleCompute() {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "7f3a"
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	pod.Spec.Containers = []v1.Container{{Name: "app", Image: "app:1"}}

	// crashed is the status after the given number of restarts.
	noon := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	crashed := func(restarts int32, at time.Time) *runtime.PodStatus {
		status := &runtime.PodStatus{Sandboxes: []runtime.SandboxStatus{{
			Sandbox: runtime.Sandbox{ID: "sandbox", State: runtime.SandboxReady},
			IPs:     []string{"10.88.0.7"},
		}}}
		app := runtime.ContainerStatus{RestartCount: restarts, ExitCode: 1, FinishedAt: at}
		app.ID = runtime.ContainerID{Type: "containerd", ID: fmt.Sprint("app-", restarts)}
		app.Name, app.SandboxID, app.State = "app", "sandbox", runtime.ContainerExited
		status.Containers = append(status.Containers, app)
		return status
	}
	show := func(a plan.Actions) {
		for _, s := range a.Start {
			fmt.Printf("start %s, restart %d\n", s.Container.Name, s.RestartCount)
		}
		for _, w := range a.Waiting {
			fmt.Printf("%s: %s (%s left)\n", w.Reason, w.Message, a.RetryAfter)
		}
	}

	first := plan.Compute(plan.Input{Pod: pod, Status: crashed(0, noon), Now: noon})
	show(first)

	second := noon.Add(5 * time.Second)
	show(plan.Compute(plan.Input{
		Pod: pod, Status: crashed(1, second), Now: second.Add(2 * time.Second), Crashes: first.Crashes,
	}))
	// Output:
	// start app, restart 1
	// CrashLoopBackOff: back-off 10s restarting failed container=app pod=web_default(7f3a) (8s left)
}

func ExampleStopOrder() {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Name: "proxy", RestartPolicy: &always},
			{Name: "logs", RestartPolicy: &always},
		},
		Containers: []v1.Container{{Name: "app"}},
	}}
	var running []runtime.ContainerStatus
	for _, name := range []string{"proxy", "logs", "app"} {
		running = append(running, runtime.ContainerStatus{Container: runtime.Container{Name: name}})
	}
	for _, group := range plan.StopOrder(pod, running) {
		for _, n := range group {
			fmt.Println(n.Name)
		}
	}
	// Output:
	// app
	// logs
	// proxy
}
