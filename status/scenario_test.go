package status_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// A step is one generation; each has the status of the step before as its
// previous one.
type step struct {
	now     float64 // seconds after noon
	runtime *runtime.PodStatus
	probes  runtime.ProbeResults
	waiting map[string]v1.ContainerStateWaiting
	change  func(*status.Input)
	want    string
}

func TestScenarios(t *testing.T) {
	backoff := map[string]v1.ContainerStateWaiting{"app": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	probed := podOf(v1.RestartPolicyAlways, "app")
	probed.Spec.Containers[0].StartupProbe, probed.Spec.Containers[0].ReadinessProbe = &v1.Probe{}, &v1.Probe{}
	gated := podOf(v1.RestartPolicyAlways, "app")
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}

	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		steps []step
	}{
		{"start, crash, back-off, restart", podOf(v1.RestartPolicyAlways, "app"), []step{
			{now: 0, runtime: &runtime.PodStatus{}, want: `
				Pending since 0
				PodReadyToStartContainers=False@0 (PodSandboxNotReady: no pod sandbox exists)
				Initialized=True@0
				Ready=False@0 (ContainersNotReady: containers with unready status: [app])
				ContainersReady=False@0 (ContainersNotReady: containers with unready status: [app])
				PodScheduled=True@0
				app[]: waiting ContainerCreating, restarts 0`},
			{now: 1, runtime: observe("10.0.0.1"), waiting: map[string]v1.ContainerStateWaiting{"app": {Reason: "ErrImagePull"}}, want: `
				Pending 10.0.0.1 since 0
				PodReadyToStartContainers=True@1
				Initialized=True@0
				Ready=False@0 (ContainersNotReady: containers with unready status: [app])
				ContainersReady=False@0 (ContainersNotReady: containers with unready status: [app])
				PodScheduled=True@0
				app[]: waiting ErrImagePull, restarts 0`},
			{now: 3, runtime: observe("10.0.0.1", "app/a running@2.7"), want: `
				Running 10.0.0.1 since 0
				PodReadyToStartContainers=True@1
				Initialized=True@0
				Ready=True@3
				ContainersReady=True@3
				PodScheduled=True@0
				app[a]: running@2, restarts 0, started, ready`},
			{now: 9, runtime: observe("10.0.0.1", "app/a exit2@2.7-8.9"), waiting: backoff, want: `
				Running 10.0.0.1 since 0
				PodReadyToStartContainers=True@1
				Initialized=True@0
				Ready=False@9 (ContainersNotReady: containers with unready status: [app])
				ContainersReady=False@9 (ContainersNotReady: containers with unready status: [app])
				PodScheduled=True@0
				app[a]: waiting CrashLoopBackOff, was exit2@2-8 Error, restarts 0`},
			{now: 19, runtime: observe("10.0.0.1", "app/b running@18", "app/a exit2@2.7-8.9"), want: `
				Running 10.0.0.1 since 0
				PodReadyToStartContainers=True@1
				Initialized=True@0
				Ready=True@19
				ContainersReady=True@19
				PodScheduled=True@0
				app[b]: running@18, was exit2@2-8 Error, restarts 1, started, ready`},
			{now: 20, runtime: observe("10.0.0.1", "app/b running@18"), want: `
				Running 10.0.0.1 since 0
				PodReadyToStartContainers=True@1
				Initialized=True@0
				Ready=True@19
				ContainersReady=True@19
				PodScheduled=True@0
				app[b]: running@18, was exit2@2-8 Error, restarts 1, started, ready`},
		}},
		{"the runtime forgets instances", podOf(v1.RestartPolicyAlways, "app"), []step{
			{now: 5, runtime: observe("10.0.0.1", "app/b running@4", "app/a exit1@1-3"), want: `
				app[b]: running@4, was exit1@1-3 Error, restarts 1, started, ready`},
			{now: 6, runtime: observe("10.0.0.1", "app/c running@6"), want: `
				app[c]: running@6, was exit1@1-3 Error, restarts 2, started, ready`},
			{now: 7, runtime: observe("10.0.0.1", "app/c running@6"), want: `
				app[c]: running@6, was exit1@1-3 Error, restarts 2, started, ready`},
			{now: 8, runtime: observe("10.0.0.1"), want: `
				Running 10.0.0.1 since -1
				app[]: waiting ContainerCreating, was exit137@--- ContainerStatusUnknown, restarts 3`},
			{now: 9, runtime: observe("10.0.0.1"), want: `
				app[]: waiting ContainerCreating, was exit137@--- ContainerStatusUnknown, restarts 3`},
			{now: 10, runtime: observe("10.0.0.1", "app/d running@10"), want: `
				app[d]: running@10, was exit137@--- ContainerStatusUnknown, restarts 3, started, ready`},
			{now: 11, runtime: observe("10.0.0.1", "app/d unknown"), want: `
				app[d]: exit137@--- ContainerStatusUnknown, was exit137@--- ContainerStatusUnknown, restarts 3`},
			{now: 12, runtime: observe("10.0.0.1", "app/d unknown"), want: `
				Running 10.0.0.1 since -1
				app[d]: exit137@--- ContainerStatusUnknown, was exit137@--- ContainerStatusUnknown, restarts 3`},
			{now: 13, runtime: nil, want: `
				Running 10.0.0.1 since -1
				PodReadyToStartContainers=True@5
				app[d]: exit137@--- ContainerStatusUnknown, was exit137@--- ContainerStatusUnknown, restarts 3`},
		}},
		{"job succeeds", podOf(v1.RestartPolicyOnFailure, "a", "b"), []step{
			{now: 1, runtime: observe("10.0.0.1", "a/1 exit0@0-1", "b/2 running@0"), want: `
				Running 10.0.0.1 since -1
				a[1]: exit0@0-1 Completed, restarts 0
				b[2]: running@0, restarts 0, started, ready`},
			{now: 2, runtime: observe("10.0.0.1", "a/1 exit0@0-1", "b/2 exit1@0-2"), want: `
				Running 10.0.0.1 since -1
				b[2]: exit1@0-2 Error, restarts 0`},
			{now: 4, runtime: observe("10.0.0.1", "b/3 exit0@3-4", "a/1 exit0@0-1", "b/2 exit1@0-2"), want: `
				Succeeded 10.0.0.1 since -1
				Initialized=True@1 (PodCompleted: )
				Ready=False@1 (PodCompleted: )
				ContainersReady=False@1 (PodCompleted: )
				b[3]: exit0@3-4 Completed, was exit1@0-2 Error, restarts 1`},
			{now: 5, runtime: observe(""), want: `
				Succeeded 10.0.0.1 since -1
				PodReadyToStartContainers=False@5 (PodSandboxNotReady: pod sandbox is not ready)
				a[1]: exit0@0-1 Completed, restarts 0
				b[3]: exit0@3-4 Completed, was exit1@0-2 Error, restarts 1`},
		}},
		{"never restarted", podOf(v1.RestartPolicyNever, "a", "b"), []step{
			{now: 1, runtime: observe("10.0.0.1", "a/1 exit3@0-1", "b/2 running@0"), want: `
				Running 10.0.0.1 since -1`},
			{now: 2, runtime: observe("10.0.0.1", "a/1 exit3@0-1", "b/2 exit0@0-2"), waiting: map[string]v1.ContainerStateWaiting{"a": {Reason: "CrashLoopBackOff"}}, want: `
				Failed 10.0.0.1 since -1
				Ready=False@1 (PodFailed: )
				a[1]: exit3@0-1 Error, restarts 0
				b[2]: exit0@0-2 Completed, restarts 0`},
		}},
		{"init containers and a sidecar", podOf(v1.RestartPolicyAlways, "init:one", "side:log", "init:two", "app"), []step{
			{now: 1, runtime: observe("10.0.0.1", "one/1 running@1"), want: `
				Pending 10.0.0.1 since -1
				Initialized=False@1 (ContainersNotInitialized: containers with incomplete status: [one log two])
				Ready=False@1 (ContainersNotReady: containers with unready status: [log app])
				one[1]: running@1, restarts 0, started
				log[]: waiting PodInitializing, restarts 0
				two[]: waiting PodInitializing, restarts 0
				app[]: waiting PodInitializing, restarts 0`},
			{now: 3, runtime: observe("10.0.0.1", "two/3 running@3", "log/2 running@2", "one/1 exit0@1-2"), want: `
				Pending 10.0.0.1 since -1
				Initialized=False@1 (ContainersNotInitialized: containers with incomplete status: [two])
				one[1]: exit0@1-2 Completed, restarts 0, ready
				log[2]: running@2, restarts 0, started, ready
				two[3]: running@3, restarts 0, started`},
			{now: 5, runtime: observe("10.0.0.1", "app/4 running@4", "two/3 exit0@3-4", "log/2 running@2", "one/1 exit0@1-2"), want: `
				Running 10.0.0.1 since -1
				Initialized=True@5
				Ready=True@5`},
			{now: 6, runtime: observe("10.0.0.1", "app/4 running@4", "log/2 exit0@2-6"), waiting: map[string]v1.ContainerStateWaiting{"log": {Reason: "CrashLoopBackOff"}}, want: `
				Running 10.0.0.1 since -1
				Initialized=True@5
				Ready=False@6 (ContainersNotReady: containers with unready status: [log])
				one[1]: exit0@1-2 Completed, restarts 0, ready
				log[2]: waiting CrashLoopBackOff, was exit0@2-6 Completed, restarts 0`},
		}},
		{"init containers are gone and nobody remembers", podOf(v1.RestartPolicyAlways, "init:one", "app"), []step{
			{now: 5, runtime: observe("10.0.0.1", "app/4 running@4"), want: `
				Running 10.0.0.1 since -1
				Initialized=True@5
				Ready=True@5
				one[]: exit0@--- Completed, restarts 0, ready
				app[4]: running@4, restarts 0, started, ready`},
		}},
		{"init container fails for good", podOf(v1.RestartPolicyNever, "init:one", "app"), []step{
			{now: 5, runtime: observe("10.0.0.1", "one/1 exit1@1-2"), want: `
				Failed 10.0.0.1 since -1
				Initialized=False@5 (ContainersNotInitialized: containers with incomplete status: [one])
				one[1]: exit1@1-2 Error, restarts 0
				app[]: waiting PodInitializing, restarts 0`},
		}},
		{"init container is tried again", podOf(v1.RestartPolicyAlways, "init:one", "app"), []step{
			{now: 5, runtime: observe("10.0.0.1", "one/1 exit1@1-2"), waiting: map[string]v1.ContainerStateWaiting{"one": {Reason: "CrashLoopBackOff"}}, want: `
				Pending 10.0.0.1 since -1
				one[1]: waiting CrashLoopBackOff, was exit1@1-2 Error, restarts 0`},
		}},
		{"a new sandbox does not make the pod Pending", podOf(v1.RestartPolicyAlways, "init:one", "app"), []step{
			{now: 5, runtime: observe("10.0.0.1", "app/4 running@4", "one/1 exit0@1-2"), want: `
				Running 10.0.0.1 since -1`},
			{now: 7, runtime: observe("10.0.0.2", "one/5 running@7"), want: `
				Running 10.0.0.2 since -1
				one[5]: running@7, was exit0@1-2 Completed, restarts 1, started
				app[]: waiting PodInitializing, was exit137@--- ContainerStatusUnknown, restarts 1`},
		}},
		{"probes", probed, []step{
			{now: 1, runtime: observe("10.0.0.1", "app/a running@1"), probes: probes{}, want: `
				Running 10.0.0.1 since -1
				app[a]: running@1, restarts 0`},
			{now: 2, runtime: observe("10.0.0.1", "app/a running@1"), probes: probes{ready: "a"}, want: `
				app[a]: running@1, restarts 0`},
			{now: 3, runtime: observe("10.0.0.1", "app/a running@1"), probes: probes{started: "a"}, want: `
				Ready=False@1 (ContainersNotReady: containers with unready status: [app])
				app[a]: running@1, restarts 0, started`},
			{now: 4, runtime: observe("10.0.0.1", "app/a running@1"), probes: probes{started: "a", ready: "a"}, want: `
				Ready=True@4
				app[a]: running@1, restarts 0, started, ready`},
			{now: 5, runtime: observe("10.0.0.1", "app/a exit0@1-4"), probes: probes{started: "a", ready: "a"}, want: `
				Ready=False@5 (ContainersNotReady: containers with unready status: [app])
				app[a]: exit0@1-4 Completed, restarts 0`},
		}},
		{"readiness gates", gated, []step{
			{now: 1, runtime: observe("10.0.0.1", "app/a running@1"), want: `
				Ready=False@1 (ReadinessGatesNotReady: corresponding condition of pod readiness gate "lb" does not exist.)
				ContainersReady=True@1`},
			{now: 2, runtime: observe("10.0.0.1", "app/a running@1"), change: func(in *status.Input) {
				in.Pod.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionFalse}}
			}, want: `
				lb=False@2
				Ready=False@1 (ReadinessGatesNotReady: the status of pod readiness gate "lb" is not "True", but False)`},
			{now: 3, runtime: observe("10.0.0.1", "app/a running@1"), change: func(in *status.Input) {
				in.Pod.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue},
					{Type: v1.PodReady, Status: v1.ConditionFalse}}
			}, want: `
				lb=True@3
				Ready=True@3`},
			{now: 4, runtime: observe("10.0.0.1", "app/a running@1"), want: `
				lb=True@3
				Ready=True@3`},
		}},
		{"eviction", podOf(v1.RestartPolicyAlways, "app"), []step{
			{now: 1, runtime: observe("10.0.0.1", "app/a running@1"), want: `Running 10.0.0.1 since -1`},
			{now: 2, runtime: observe("10.0.0.1", "app/a running@1"), change: func(in *status.Input) {
				in.Terminating = true
				in.Override = func(s *v1.PodStatus) {
					s.Phase, s.Reason, s.Message = v1.PodFailed, "Evicted", "no memory left"
					s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.DisruptionTarget,
						Status: v1.ConditionTrue, Reason: "TerminationByKubelet"})
				}
			}, want: `
				Failed (Evicted: no memory left) 10.0.0.1 since -1
				DisruptionTarget=True@2 (TerminationByKubelet: )
				Ready=False@2 (PodFailed: )
				app[a]: running@1, restarts 0, started, ready`},
			{now: 3, runtime: observe("", "app/a exit0@1-3"), change: func(in *status.Input) { in.Terminated = true }, want: `
				Failed (Evicted: no memory left) 10.0.0.1 since -1
				DisruptionTarget=True@2 (TerminationByKubelet: )
				app[a]: exit0@1-3 Completed, restarts 0`},
		}},
		{"stopped", podOf(v1.RestartPolicyAlways, "app"), []step{
			{now: 1, runtime: observe("10.0.0.1", "app/a running@1"), want: `Running 10.0.0.1 since -1`},
			{now: 2, runtime: observe("10.0.0.1", "app/a exit0@1-2"), waiting: backoff, change: func(in *status.Input) { in.Terminating = true }, want: `
				Running 10.0.0.1 since -1
				app[a]: exit0@1-2 Completed, restarts 0`},
			{now: 3, runtime: observe("", "app/a exit0@1-2"), change: func(in *status.Input) { in.Terminated = true }, want: `
				Succeeded 10.0.0.1 since -1`},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := tc.pod.DeepCopy()
			var prev *v1.PodStatus
			for i, s := range tc.steps {
				in := status.Input{Pod: pod, Runtime: s.runtime, Previous: prev, Probes: s.probes, Waiting: s.waiting,
					Now: at(s.now)}
				if s.change != nil {
					in.Pod = pod.DeepCopy()
					s.change(&in)
				}
				got := status.Generate(in)
				checkLines(t, i, s.want, render(got))
				again := in
				again.Previous = &got
				assert.Equal(t, render(got), render(status.Generate(again)), "step %d again", i)
				prev = &got
			}
		})
	}
}

// checkLines has every wanted line be one of those that are there.
func checkLines(t *testing.T, i int, want, got string) {
	t.Helper()
	have := strings.Split(got, "\n")
	for line := range strings.SplitSeq(strings.TrimSpace(want), "\n") {
		if !assert.Contains(t, have, strings.TrimSpace(line), "step %d:\n%s", i, got) {
			return
		}
	}
}
