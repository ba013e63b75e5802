package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestTones(t *testing.T) {
	crashed := podtest.Waiting("b", "CrashLoopBackOff",
		"back-off 10s restarting failed container=b pod=web_default(u1)")
	crashed.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 3,
		Message: "connecting\nno password\n"}
	init := []v1.ContainerStatus{podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true)}
	pod := func(phase v1.PodPhase, statuses ...v1.ContainerStatus) *v1.Pod {
		p := podtest.Pod(phase, append(init, statuses...)...)
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}
		return p
	}
	for _, tt := range []struct {
		pod  *v1.Pod
		tone tone
	}{
		{pod(v1.PodRunning, podtest.Running("a", true), podtest.Running("b", true)), good},
		{pod(v1.PodRunning, podtest.Running("a", true), podtest.Running("b", false)), waits},
		{pod(v1.PodRunning, podtest.Running("a", true), crashed), bad},
		{pod(v1.PodRunning, podtest.Ended("a", "OOMKilled", 137, 9)), bad},
		{podtest.Pod(v1.PodPending), waits},
		{pod(v1.PodSucceeded), ended},
		{podtest.With(pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "low on memory" }), bad},
		{podtest.With(pod(v1.PodRunning), func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(podtest.Noon.Add(20 * time.Second))) }), waits},
	} {
		assert.Equal(t, tt.tone, toneOf(tt.pod, terminal.Summarize(tt.pod)),
			terminal.Why(tt.pod, nil, nil, podtest.Noon))
	}
}

func TestEntriesThatReplaceOthers(t *testing.T) {
	first := history.Entry{Record: runtime.Record{Stage: runtime.StageSeen, Kind: runtime.KindContainerExited,
		Container: "a", ExitCode: 1}, Seq: 1, Count: 1, First: podtest.Noon, Last: podtest.Noon}
	second := first
	second.Seq, second.Count, second.Last, second.Duration = 9, 5, podtest.Noon.Add(time.Minute), time.Second
	assert.Equal(t, entryOf(first).Key, entryOf(second).Key)
	second.Container = "b"
	assert.NotEqual(t, entryOf(first).Key, entryOf(second).Key)
	for kind, want := range map[runtime.RecordKind]tone{
		runtime.KindOOMKill: bad, runtime.KindBackOff: waits, runtime.KindSandboxReady: good,
		runtime.KindContainerExited: ended, runtime.KindAdmit: normal,
	} {
		assert.Equal(t, want, entryOf(history.Entry{Record: runtime.Record{Kind: kind}}).Tone, kind)
	}
	assert.Equal(t, bad,
		entryOf(history.Entry{Record: runtime.Record{Kind: runtime.KindPullImage, Error: "no such image"}}).Tone)
}
