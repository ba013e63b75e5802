package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// An error that is in several places of a page is printed in the first of them.
func TestDescribeHasEachErrorOnce(t *testing.T) {
	const cause = "failed to resolve reference registry.example.com/app:3"
	pull := "Failed to pull image app:3: rpc error: " + cause
	p := podtest.Pod(v1.PodPending, podtest.Waiting("a", "ErrImagePull", pull))
	text := describe(&known{
		pod: p,
		events: []runtime.Event{{Type: "Warning", Reason: "Failed", Message: pull},
			{Type: "Warning", Reason: "Failed", Message: "Error: " + pull}},
		past: []history.Entry{{Record: runtime.Record{
			Stage: runtime.StageDone, Kind: runtime.KindPullImage, Message: "app:3", Container: "a",
			Error: "rpc error: " + cause,
		}, Count: 1}},
	}, podtest.Noon, 0)
	assert.True(t, strings.HasPrefix(text, "Not running: it is starting") ||
		strings.HasPrefix(text, "Not running: container a waits: ErrImagePull: "+pull+"\n\n"), text)
	assert.Equal(t, 1, strings.Count(text, cause), text)
	assert.Contains(t, text, "Pulling image app:3 failed: as above")

	var s said
	assert.Equal(t, "short", s.rest("short"))
	assert.Equal(t, "short", s.rest("short"))
	assert.Equal(t, "a: a cause that is long enough", s.rest("a: a cause that is long enough"))
	assert.Equal(t, "b: as above", s.rest("b: a cause that is long enough"))
	assert.Equal(t, "as above", s.rest("a cause\nthat is long enough"))
}

func TestLocalTimes(t *testing.T) {
	zone := time.FixedZone("", 5*3600)
	now := podtest.Noon.In(zone)
	assert.Equal(t, "16:59:00", localTime(podtest.Ago(time.Minute).Time, now))
	assert.Equal(t, "Jan 01 17:00:00", localTime(podtest.Ago(24*time.Hour).Time, now))
	assert.Equal(t, "2025-12-31 17:00", localTime(podtest.Ago(48*time.Hour).Time, now))
}

// The end of a pod that was told to stop is no problem.
func TestNewestProblem(t *testing.T) {
	of := func(records ...runtime.Record) (past []history.Entry) {
		for _, r := range records {
			past = append(past, history.Entry{Record: r})
		}
		return past
	}
	failed := runtime.Record{Kind: runtime.KindContainerExited, ExitCode: 3}
	stop := runtime.Record{Stage: runtime.StageDecided, Kind: runtime.KindStopPod}
	killed := runtime.Record{Kind: runtime.KindContainerExited, ExitCode: 143}
	died := runtime.Record{Kind: runtime.KindSandboxDied}
	sandbox := runtime.Record{Stage: runtime.StageDone, Kind: runtime.KindCreateSandbox}
	assert.Nil(t, newestProblem(of(sandbox, stop, killed, died)))
	assert.Equal(t, failed, newestProblem(of(sandbox, failed, stop, killed, died)).Record)
	assert.Equal(t, died, newestProblem(of(sandbox, stop, killed, died, sandbox, died)).Record)
}
