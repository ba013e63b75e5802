package history

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func TestSentence(t *testing.T) {
	seen, decided, done := runtime.StageSeen, runtime.StageDecided, runtime.StageDone
	for want, r := range map[string]runtime.Record{
		"The sandbox is ready": {Stage: seen, Kind: runtime.KindSandboxReady},
		"Container a exited with code 137 (OOMKilled) after 1h2m3s": {
			Stage: seen, Kind: runtime.KindContainerExited, Container: "a", ExitCode: 137, Reason: "OOMKilled",
			Duration: 3723*time.Second + time.Millisecond,
		},
		"Container a is gone from the runtime": {Stage: seen, Kind: runtime.KindContainerExited, Container: "a", Reason: runtime.ReasonGone},
		"The kernel killed a process of container a for lack of memory: sh (pid 7); the node is out of memory": {
			Stage: seen, Kind: runtime.KindOOMKill, Container: "a", Message: "sh (pid 7); the node is out of memory",
		},
		"Container a is to be started: it has not run yet": {
			Stage: decided, Kind: runtime.KindStartContainer, Container: "a", Reason: plan.ReasonNew,
		},
		"Container a is to be stopped within 30s: Overheated: 90 C": {
			Stage: decided, Kind: runtime.KindStopContainer, Container: "a", Reason: "Overheated", Message: "90 C",
			Duration: 30 * time.Second,
		},
		"Readiness probe of container a succeeds": {Stage: decided, Kind: runtime.KindProbe, Container: "a", Reason: "Readiness"},
		"Starting container a failed after 12.35s: RunContainerError": {
			Stage: done, Kind: runtime.KindStartContainer, Container: "a", Duration: 12345 * time.Millisecond,
			Error: "RunContainerError",
		},
		"The pod was changed in spec.x; these do not act on what runs: spec.x": {
			Stage: decided, Kind: runtime.KindUpdate, Message: "spec.x", Error: "spec.x",
		},
		"Image app:1 is to be pulled for container a: it was removed 1h2m3s ago, when no pod used it": {
			Stage: decided, Kind: runtime.KindPullImage, Container: "a", Message: "app:1",
			Reason: runtime.ReasonImageRemoved, Duration: 3723 * time.Second,
		},
		"Container a is to get other resources: cpu, memory": {Stage: decided, Kind: runtime.KindResizeContainer, Container: "a", Message: "cpu, memory"},
		"Resizing container a failed: in use":                {Stage: done, Kind: runtime.KindResizeContainer, Container: "a", Error: "in use"},
		"Container a is to be stopped within 30s: its resources have changed, which requires a restart": {
			Stage: decided, Kind: runtime.KindStopContainer, Container: "a", Reason: plan.ReasonResize,
			Duration: 30 * time.Second,
		},
		"Container a waits 40s before the next attempt: it keeps ending":                   {Stage: decided, Kind: runtime.KindBackOff, Container: "a", Duration: 40 * time.Second, Reason: "CrashLoopBackOff"},
		"Container a waits 40s before the next attempt: it keeps ending, last with code 7": {Stage: decided, Kind: runtime.KindBackOff, Container: "a", Duration: 40 * time.Second, Reason: "CrashLoopBackOff", Message: "code 7"},
		"A pod is rejected, from source file: no image":                                    {Stage: decided, Kind: runtime.KindReject, Source: "file", Message: "no image"},
		"Removing the cgroup of the pod failed: busy":                                      {Stage: done, Kind: runtime.KindRemoveCgroup, Error: "busy"},
		"The log of container a is rotated":                                                {Stage: done, Kind: runtime.KindRotateLog, Container: "a"},
		"Rotating the log of container a failed: no answer":                                {Stage: done, Kind: runtime.KindRotateLog, Container: "a", Error: "no answer"},
		"Calibrated a: Drift: 3 mm: late":                                                  {Stage: done, Kind: "Calibrated", Container: "a", Reason: "Drift", Message: "3 mm", Error: "late"},
	} {
		assert.Equal(t, want, Sentence(r))
	}
	// Each kind has a sentence of its own in at least one stage.
	for _, kind := range kinds {
		own := false
		for _, stage := range stages {
			own = own ||
				!strings.HasPrefix(Sentence(runtime.Record{Stage: stage, Kind: kind, Container: "a", Reason: "R"}),
					string(kind))
		}
		assert.True(t, own, kind)
	}
}
