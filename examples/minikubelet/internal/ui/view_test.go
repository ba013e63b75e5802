package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestWhy(t *testing.T) {
	crashed := podtest.Waiting("b", "CrashLoopBackOff", "back-off 10s restarting failed container=b pod=web_default(u1)")
	crashed.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 3, Message: "connecting\nno password\n"}
	init := []v1.ContainerStatus{podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true)}
	pod := func(phase v1.PodPhase, statuses ...v1.ContainerStatus) *v1.Pod {
		p := podtest.Pod(phase, append(init, statuses...)...)
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}
		return p
	}
	unhealthy := []runtime.Event{{Type: v1.EventTypeWarning, Message: "Readiness probe failed:\n 503"}, {Type: v1.EventTypeNormal, Message: "Started"}}
	for _, tt := range []struct {
		pod    *v1.Pod
		events []runtime.Event
		tone   tone
		why    string
	}{
		{pod(v1.PodRunning, podtest.Running("a", true), podtest.Running("b", true)), unhealthy, good, "Running: 3 of 3 containers are ready"},
		{pod(v1.PodRunning, podtest.Running("a", true), podtest.Running("b", false)), unhealthy, waits, "Running, but not ready: 2 of 3 containers are ready: Readiness probe failed: 503"},
		{pod(v1.PodRunning, podtest.Running("a", true), crashed), nil, bad, "Not running: container b has ended with exit code 3 (no password), and waits: CrashLoopBackOff: back-off 10s"},
		{pod(v1.PodRunning, podtest.Ended("a", "OOMKilled", 137, 9)), nil, bad, "Not running: container a has ended: OOMKilled, exit code 137"},
		{podtest.Pod(v1.PodPending), unhealthy, waits, "Not running: it is starting (Pending): Readiness probe failed: 503"},
		{pod(v1.PodSucceeded), nil, ended, "Succeeded: all containers have ended with exit code 0"},
		{podtest.With(pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "low on memory" }), nil, bad, "Not running: Evicted: low on memory"},
		{podtest.With(pod(v1.PodRunning), func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(podtest.Noon.Add(20 * time.Second))) }), nil, waits, "Terminating: its grace period ends in 20s"},
	} {
		assert.Equal(t, tt.why, why(tt.pod, tt.events, podtest.Noon))
		assert.Equal(t, tt.tone, toneOf(tt.pod, terminal.Summarize(tt.pod)), tt.why)
	}
}

func TestEntriesThatReplaceOthers(t *testing.T) {
	first := history.Entry{Record: runtime.Record{Stage: runtime.StageSeen, Kind: runtime.KindContainerExited, Container: "a", ExitCode: 1}, Seq: 1, Count: 1, First: podtest.Noon, Last: podtest.Noon}
	second := first
	second.Seq, second.Count, second.Last, second.Duration = 9, 5, podtest.Noon.Add(time.Minute), time.Second
	assert.Equal(t, entryOf(first).Key, entryOf(second).Key)
	second.Container = "b"
	assert.NotEqual(t, entryOf(first).Key, entryOf(second).Key)
	for kind, want := range map[runtime.RecordKind]tone{
		runtime.KindOOMKill: bad, runtime.KindBackOff: waits, runtime.KindSandboxReady: good, runtime.KindContainerExited: ended, runtime.KindAdmit: normal,
	} {
		assert.Equal(t, want, entryOf(history.Entry{Record: runtime.Record{Kind: kind}}).Tone, kind)
	}
	assert.Equal(t, bad, entryOf(history.Entry{Record: runtime.Record{Kind: runtime.KindPullImage, Error: "no such image"}}).Tone)
}
