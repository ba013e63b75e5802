package terminal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestWhy(t *testing.T) {
	setup, proxy := podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true)
	a, b := podtest.Running("a", true), podtest.Running("b", true)
	crash := podtest.Restarted(podtest.Waiting("b", "CrashLoopBackOff", "back-off 10s"), 3, time.Minute)
	crash.LastTerminationState.Terminated.ExitCode = 7
	talks := podtest.Waiting("b", "CrashLoopBackOff", "back-off 10s restarting failed container=b pod=web_default(u1)")
	talks.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 3,
		Message: "connecting\nno password\n"}
	unhealthy := []runtime.Event{
		{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: 503"}, {Type: "Normal", Reason: "Pulled", Message: "there"},
	}
	for _, tt := range []struct {
		pod    *v1.Pod
		events []runtime.Event
		want   string
	}{
		{podtest.Pod(v1.PodRunning, setup, proxy, a, b), nil, "Running: 3 of 3 containers are ready"},
		{podtest.Pod(v1.PodRunning, setup, proxy, a, crash), nil, "Not running: container b has ended with exit code 7, and waits: CrashLoopBackOff: back-off 10s"},
		{podtest.Pod(v1.PodRunning, setup, proxy, a, talks), nil, "Not running: container b has ended with exit code 3 (no password), and waits: CrashLoopBackOff: back-off 10s"},
		{podtest.Pod(v1.PodPending, podtest.Waiting("setup", "ErrImagePull", "no\nroute")), nil, "Not running: container setup waits: ErrImagePull: no route"},
		{podtest.Pod(v1.PodPending, podtest.Waiting("a", "ContainerCreating", "")), []runtime.Event{{Type: "Warning", Message: "no network"}}, "Not running: it is starting (ContainerCreating): no network"},
		{podtest.Pod(""), nil, "Not running: it is starting (Pending)"},
		{podtest.Pod(v1.PodRunning, podtest.Ended("a", "Completed", 0, 0)), nil, "Not running: all containers have ended (Completed)"},
		{podtest.Pod(v1.PodRunning, setup, proxy, a, podtest.Running("b", false)), unhealthy, "Running, but not ready: b: Readiness probe failed: 503"},
		{podtest.Pod(v1.PodPending), []runtime.Event{{Type: "Warning", Message: "Readiness probe failed:\n 503"}, {Type: "Normal", Message: "Started"}}, "Not running: it is starting (Pending): Readiness probe failed: 503"},
		{podtest.Pod(v1.PodRunning, setup, proxy, podtest.Ended("a", "OOMKilled", 137, 9)), nil, "Not running: container a has ended with exit code 137, OOMKilled"},
		{podtest.With(podtest.Pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "low on memory" }), nil, "Failed: Evicted: low on memory"},
		{podtest.Pod(v1.PodSucceeded), nil, "Succeeded: all containers have ended with exit code 0"},
		{podtest.Pod(v1.PodFailed, podtest.Ended("a", "OOMKilled", 137, 0)), nil, "Failed: container a has ended with exit code 137, OOMKilled"},
		{podtest.Pod(v1.PodFailed), nil, "Failed"},
		{podtest.With(podtest.Pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "OutOfcpu", "no room" }), nil, "Failed: OutOfcpu: no room"},
		{podtest.With(podtest.Pod(v1.PodPending), func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "WaitingForPredecessor", "starts later" }), nil, "Not running: WaitingForPredecessor: starts later"},
		{podtest.With(podtest.Pod(v1.PodRunning, a), func(p *v1.Pod) { p.DeletionTimestamp = new(podtest.Ago(-20 * time.Second)) }), nil, "Terminating: its grace period ends in 20s"},
		{podtest.With(podtest.Pod(v1.PodRunning, a), func(p *v1.Pod) { p.DeletionTimestamp = new(podtest.Ago(20 * time.Second)) }),
			[]runtime.Event{{Type: "Warning", Reason: "FailedKillPod", Message: "it hangs"}},
			"Terminating: its grace period ended 20s ago: it hangs"},
	} {
		assert.Equal(t, tt.want, Why(tt.pod, tt.events, nil, podtest.Noon))
	}
}

// The line names the cause of an end that was not the container's own.
func TestWhyOfAStoppedContainer(t *testing.T) {
	record := func(stage runtime.RecordStage, kind runtime.RecordKind, reason, failure string) history.Entry {
		return history.Entry{Record: runtime.Record{Stage: stage, Kind: kind, Container: "b",
			Reason: reason, Error: failure}}
	}
	started := record(runtime.StageDone, runtime.KindStartContainer, "", "")
	stop := func(reason string) history.Entry {
		return record(runtime.StageDecided, runtime.KindStopContainer, reason, "")
	}
	stopped, exited := record(runtime.StageDone, runtime.KindStopContainer, "", ""),
		record(runtime.StageSeen, runtime.KindContainerExited, "Error", "")
	again := record(runtime.StageDecided, runtime.KindStartContainer, "Exited", "")
	hook := record(runtime.StageDone, runtime.KindPostStart, "", "exit code 127")
	liveness := record(runtime.StageDecided, runtime.KindProbe, "Liveness", "HTTP probe failed with\nstatuscode: 503")
	readiness := record(runtime.StageDecided, runtime.KindProbe, "Readiness", "refused")
	oom := record(runtime.StageSeen, runtime.KindOOMKill, "", "")
	other := stop("StartupProbe")
	other.Container = "a"

	crash := podtest.Restarted(podtest.Waiting("b", "CrashLoopBackOff", "back-off 10s"), 1, time.Minute)
	crash.LastTerminationState.Terminated.ExitCode = 143
	const begin, end = "Not running: container b has ended with exit code 143",
		", and waits: CrashLoopBackOff: back-off 10s"
	for _, tt := range []struct {
		past []history.Entry
		want string
	}{
		{nil, ""},
		{[]history.Entry{started, hook, stop("PostStartHookError"), stopped, exited, again}, ": it was stopped: its postStart hook has failed (exit code 127)"},
		{[]history.Entry{started, stop("PostStartHookError"), exited}, ": it was stopped: its postStart hook has failed"},
		{[]history.Entry{started, liveness, readiness, stop("LivenessProbe"), exited, other}, ": it was stopped: its liveness probe has failed (HTTP probe failed with statuscode: 503)"},
		{[]history.Entry{started, readiness, stop("StartupProbe"), exited}, ": it was stopped: its startup probe has failed"},
		{[]history.Entry{started, liveness, readiness, exited}, ": it was stopped: its liveness probe has failed (HTTP probe failed with statuscode: 503)"},
		{[]history.Entry{started, readiness, exited}, ""},
		{[]history.Entry{started, stop("DefinitionChanged"), exited}, ": it was stopped: its definition has changed"},
		{[]history.Entry{started, oom, exited}, ": the kernel has killed a process of it for lack of memory"},
		{[]history.Entry{started, stop("Requested"), exited}, ""},
		{[]history.Entry{started, stop("LivenessProbe"), exited, again, started, exited}, ""},
	} {
		pod := podtest.Pod(v1.PodRunning, podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true),
			podtest.Running("a", true), crash)
		assert.Equal(t, begin+tt.want+end, Why(pod, nil, tt.past, podtest.Noon))
		pod = podtest.Pod(v1.PodFailed, podtest.Ended("b", "Error", 143, 0))
		assert.Equal(t, "Failed: container b has ended with exit code 143"+tt.want,
			Why(pod, nil, tt.past, podtest.Noon))
	}
	killed := podtest.Pod(v1.PodFailed, podtest.Ended("b", "OOMKilled", 137, 0))
	assert.Equal(t, "Failed: container b has ended with exit code 137, OOMKilled", Why(killed, nil,
		[]history.Entry{started, oom, exited}, podtest.Noon))
}
