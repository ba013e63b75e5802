package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func TestRestartAll(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "a main container requests it",
			pod:    "Never; init a; sidecar s; main m; main n policy=Never restart-all=42",
			status: "sandbox 0 ready; a#0 exited; s#0 running; m#0 running; n#0 exited code=42",
			want: "kill s#0 RestartAllContainers; kill m#0 RestartAllContainers; " +
				"remove m#0; remove s#0; remove a#0; remove n#0",
		},
		{
			name:   "another code does not",
			pod:    "Never; init a; main m; main n policy=Never restart-all=42",
			status: "sandbox 0 ready; a#0 exited; m#0 running; n#0 exited code=43",
			want:   "",
		},
		{
			name:   "an earlier rule wins",
			pod:    "Never; main m; main n policy=Never rule=42 restart-all=42",
			status: "sandbox 0 ready; m#0 running; n#0 exited code=42",
			want:   "start n#1",
		},
		{
			name:   "all that had finished run again, whatever their policies are",
			pod:    "Never; init a; main m policy=Never; main n policy=Never restart-all=42",
			status: "sandbox 0 ready; a#0 exited; m#0 exited; n#0 exited code=42",
			want:   "remove m#0; remove a#0; remove n#0",
		},
		{
			name:   "an init container that has succeeded requests it",
			pod:    "Always; init a policy=OnFailure restart-all=0; main m",
			status: "sandbox 0 ready; a#0 exited",
			want:   "remove a#0",
		},
		{
			name:   "an init container that has failed requests it",
			pod:    "Never; sidecar s; init a policy=Never restart-all=1; main m",
			status: "sandbox 0 ready; s#0 running; a#0 exited code=1",
			want:   "kill s#0 RestartAllContainers; remove s#0; remove a#0",
		},
		{
			name:   "an init container whose process was killed for memory has not exited with 0",
			pod:    "Always; init a policy=Always restart-all=137; main m",
			status: "sandbox 0 ready; a#0 exited code=0 oom",
			want:   "remove a#0",
		},
		{
			name:   "a sidecar requests it",
			pod:    "Always; sidecar s restart-all=3; main m",
			status: "sandbox 0 ready; s#0 exited code=3; m#0 running",
			want:   "kill m#0 RestartAllContainers; remove m#0; remove s#0",
		},
		{
			name:   "main containers that requested it go before init containers that did",
			pod:    "Always; sidecar s restart-all=3; main m policy=Never restart-all=3; main n",
			status: "sandbox 0 ready; s#0 exited code=3; m#0 exited code=3; n#0 running",
			want:   "kill n#0 RestartAllContainers; remove n#0; remove m#0; remove s#0",
		},
		{
			name:   "of several instances the newest goes last, also those of another sandbox",
			pod:    "Always; main m; main n policy=Never restart-all=3",
			status: "sandbox 1 ready; sandbox 0 dead; m#1 running; m#0@0 exited; n#1 exited code=3; n#0@0 exited code=3",
			want:   "kill m#1 RestartAllContainers; remove m#0; remove m#1; remove n#0; remove n#1",
		},
		{
			name:   "an earlier instance does not request it",
			pod:    "Always; main m; main n policy=Never restart-all=3",
			status: "sandbox 0 ready; m#0 running; n#1 running; n#0 exited code=3",
			want:   "",
		},
		{
			name:   "what is unknown is killed",
			pod:    "Always; main m; main n policy=Never restart-all=3",
			status: "sandbox 0 ready; m#0 unknown; n#0 exited code=3",
			want:   "kill m#0 RestartAllContainers; remove m#0; remove n#0",
		},
		{
			name:   "what was created is removed",
			pod:    "Always; main m; main n policy=Never restart-all=3",
			status: "sandbox 0 ready; m#0 created; n#0 exited code=3",
			want:   "remove m#0; remove n#0",
		},
		{
			name:   "ephemeral containers run on, and strays stay as they are",
			pod:    "Always; main m policy=Never restart-all=3; ephemeral e",
			status: "sandbox 0 ready; m#0 exited code=3; e#0 running; x#0 exited",
			want:   "remove m#0",
		},
		{
			name:   "in a sandbox that has died",
			pod:    "Never; init a; main m policy=Never restart-all=3; main n",
			status: "sandbox 0 dead; a#0 exited; m#0 exited code=3; n#0 exited code=137",
			want:   "remove n#0; remove a#0; remove m#0",
		},
		{
			name:   "not in a pod that is being deleted",
			pod:    "Never deleted; main m policy=Never restart-all=3",
			status: "sandbox 0 ready; m#0 exited code=3",
			want:   "kill pod",
		},
		{
			name:   "a resize waits",
			pod:    "Always; main m; main n policy=Never restart-all=3",
			status: "sandbox 0 ready; m#0 running image=old; n#0 exited code=3",
			want:   "kill m#0 RestartAllContainers; remove m#0; remove n#0",
		},
		{
			name:   "the agent was restarted in the middle",
			pod:    "Never; init a; main m; main n policy=Never restart-all=42",
			status: "sandbox 0 ready; a#0 exited; n#0 exited code=42",
			want:   "remove a#0; remove n#0",
		},
		{
			name:   "then everything starts anew",
			pod:    "Never; init a; sidecar s; main m; main n policy=Never restart-all=42",
			status: "sandbox 0 ready",
			want:   "start a#0",
		},
	})
}

// The container that requests restarts again and again is in back-off. Meanwhile the others are gone already.
func TestRestartAllBackoff(t *testing.T) {
	pod := parsePod(t, "Never; main m; main n policy=Never restart-all=42")
	var crashes map[string]plan.Crash
	compute := func(status string) plan.Actions {
		a := plan.Compute(plan.Input{Pod: pod, Status: parseStatus(t, status), Now: now, Crashes: crashes})
		crashes = a.Crashes
		return a
	}
	assert.Equal(t, "kill m#0 RestartAllContainers; remove m#0; remove n#0",
		transcript(compute("sandbox 0 ready; m#0 running; n#0 exited code=42 ago=1s")))
	a := compute("sandbox 0 ready")
	assert.Equal(t, "start m#0; start n#0", transcript(a))
	assert.Equal(t, []time.Duration{0, 10 * time.Second}, []time.Duration{a.Start[0].Backoff, a.Start[1].Backoff},
		"it is recorded with the instance, for the next agent")

	const second = "sandbox 0 ready; m#1 running; n#1 exited code=42 ago=1s"
	a = compute(second)
	assert.Equal(t, "kill m#1 RestartAllContainers; remove m#1; wait n; retry 9s", transcript(a))
	assert.Equal(t, "back-off 10s restarting failed container=n pod=web_default(u1)", a.Waiting["n"].Message)
	assert.Equal(t, "wait n; retry 9s", transcript(compute("sandbox 0 ready; n#1 exited code=42 ago=1s")))
	assert.Equal(t, "remove n#1", transcript(compute("sandbox 0 ready; n#1 exited code=42 ago=10s")))
	assert.Equal(t, 20*time.Second, compute("sandbox 0 ready").Start[1].Backoff)

	// Another agent has the record of the instance only.
	status := parseStatus(t, second)
	status.Newest("n").Backoff = 10 * time.Second
	a = plan.Compute(plan.Input{Pod: pod, Status: status, Now: now})
	assert.Equal(t, 9*time.Second, a.RetryAfter)
}

func TestRestartingAll(t *testing.T) {
	pod := parsePod(t, "Never; sidecar s restart-all=1; main m policy=Never restart-all=42; main n policy=Never "+
		"restart-all=42")
	assert.Equal(t, []string{"s", "n"}, runtime.RestartingAll(pod, parseStatus(t, "sandbox 0 ready; s#0 exited "+
		"code=1; m#0 running; n#0 exited code=42")))
	assert.Empty(t, runtime.RestartingAll(pod, parseStatus(t, "sandbox 0 ready; s#0 exited; m#0 running")))
	assert.Empty(t, runtime.RestartingAll(pod, nil))
}
