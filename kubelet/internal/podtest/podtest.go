// Package podtest builds pods for the tests of minikubelet.
package podtest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Noon is the time of all tests.
var Noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// Ago returns a time before [Noon].
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Noon.Add(-d)) }

// Running returns the status of a container that runs.
func Running(name string, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: ready, Started: new(true),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

// Waiting returns the status of a container that waits.
func Waiting(name, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// Ended returns the status of a container that has ended.
func Ended(name, reason string, code, signal int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name,
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason,
			ExitCode: code, Signal: signal}}}
}

// Restarted adds n restarts, the last of them some time before [Noon].
func Restarted(s v1.ContainerStatus, n int32, since time.Duration) v1.ContainerStatus {
	s.RestartCount = n
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: Ago(since)}
	return s
}

// Pod returns the pod default/web-n1 on the node N1. It has two main containers, "a" and
// "b", an init container "setup" and a sidecar "proxy", each with a status if one is given.
func Pod(phase v1.PodPhase, statuses ...v1.ContainerStatus) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n1"},
		Spec: v1.PodSpec{
			NodeName:       "N1",
			InitContainers: []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
		},
		Status: v1.PodStatus{Phase: phase, StartTime: new(Ago(90 * time.Second))},
	}
	for _, s := range statuses {
		if s.Name == "setup" || s.Name == "proxy" {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		} else {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
	return p
}

// With returns the pod after the change.
func With(p *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(p); return p }

// Condition returns a change that makes the condition true.
func Condition(kind v1.PodConditionType) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
}
