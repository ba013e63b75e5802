package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

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
