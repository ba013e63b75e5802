package pleg

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The records of a change have the details of the status, and what has died comes first.
func TestRecordsOfEvents(t *testing.T) {
	pod := runtime.PodRef{UID: "u", Name: "web"}
	end := time.Now()
	id := func(s string) runtime.ContainerID { return runtime.ContainerID{Type: "t", ID: s} }
	status := &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s1", Attempt: 1,
			State: runtime.SandboxReady}}},
		Containers: []runtime.ContainerStatus{
			{Container: runtime.Container{ID: id("new"), Name: "main", State: runtime.ContainerRunning}, RestartCount: 2},
			{Container: runtime.Container{ID: id("made"), Name: "log", State: runtime.ContainerCreated}},
			{Container: runtime.Container{ID: id("lost"), Name: "log", State: runtime.ContainerUnknown}},
			{Container: runtime.Container{ID: id("old"), Name: "main", State: runtime.ContainerExited}, RestartCount: 1, ExitCode: 137, Reason: "OOMKilled",
				StartedAt: end.Add(-time.Minute), FinishedAt: end},
		},
	}
	seen := runtime.Record{Pod: pod, Stage: runtime.StageSeen, Source: runtime.SourceEvent}
	with := func(kind runtime.RecordKind, change func(*runtime.Record)) runtime.Record {
		r := seen
		r.Kind = kind
		change(&r)
		return r
	}
	var got []runtime.Record
	recordEvents(func(r runtime.Record) { got = append(got, r) }, pod, []Event{
		{Type: SandboxStarted, SandboxID: "s1"}, {Type: SandboxDied, SandboxID: "s0"}, {Type: SandboxRemoved, SandboxID: "s0"},
		{Type: ContainerStarted, ContainerID: id("new"), Name: "main"}, {Type: ContainerChanged, ContainerID: id("made"), Name: "log"},
		{Type: ContainerChanged, ContainerID: id("lost"), Name: "log"}, {Type: ContainerDied, ContainerID: id("old"), Name: "main"},
		{Type: ContainerDied, ContainerID: id("gone"), Name: "init"}, {Type: ContainerRemoved, ContainerID: id("gone"), Name: "init"},
	}, status, runtime.SourceEvent)
	assert.Equal(t, []runtime.Record{
		with(runtime.KindSandboxDied, func(*runtime.Record) {}),
		with(runtime.KindContainerExited, func(r *runtime.Record) {
			r.Container, r.Attempt, r.ExitCode, r.Reason, r.Duration, r.At = "main", 1, 137, "OOMKilled", time.Minute,
				end
		}),
		with(runtime.KindContainerExited,
			func(r *runtime.Record) { r.Container, r.Reason = "init", runtime.ReasonGone }),
		with(runtime.KindSandboxReady, func(r *runtime.Record) { r.Attempt = 1 }),
		with(runtime.KindContainerRunning, func(r *runtime.Record) { r.Container, r.Attempt = "main", 2 }),
		with(runtime.KindContainerUnknown, func(r *runtime.Record) { r.Container = "log" }),
	}, got)

	got = nil
	recordEvents(func(r runtime.Record) { got = append(got, r) }, pod,
		[]Event{{Type: ContainerDied, ContainerID: id("x"), Name: "main"}}, nil, runtime.SourceRelist)
	assert.Equal(t, runtime.ReasonGone, got[0].Reason)
	recordEvents(nil, pod, []Event{{Type: ContainerDied}}, nil, runtime.SourceRelist)
}
