package plan_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// life is one instance of a container: how long it ran, and how long its
// successor has to wait from its end.
type life struct{ ran, wait time.Duration }

func TestBackoff(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, tc := range []struct {
		name    string
		backoff plan.Backoff
		lives   []life
	}{
		{
			name: "doubles to five minutes",
			lives: []life{{s, 0}, {s, 10 * s}, {s, 20 * s}, {s, 40 * s}, {s, 80 * s}, {s, 160 * s},
				{s, 300 * s}, {s, 300 * s}},
		},
		{
			name:  "is forgotten after ten minutes",
			lives: []life{{s, 0}, {s, 10 * s}, {s, 20 * s}, {10 * m, 0}, {s, 10 * s}, {s, 20 * s}},
		},
		{
			name:  "and not earlier",
			lives: []life{{s, 0}, {s, 10 * s}, {10*m - s, 20 * s}, {s, 40 * s}},
		},
		{
			name:  "the first may live long",
			lives: []life{{time.Hour, 0}, {s, 10 * s}},
		},
		{
			name:    "other limits",
			backoff: plan.Backoff{Initial: 2 * s, Max: 5 * s, Reset: m},
			lives:   []life{{s, 0}, {s, 2 * s}, {s, 4 * s}, {s, 5 * s}, {m, 0}, {s, 2 * s}},
		},
		{
			name:    "Max bounds Initial",
			backoff: plan.Backoff{Max: 3 * s},
			lives:   []life{{s, 0}, {s, 3 * s}, {s, 3 * s}},
		},
	} {
		// An init container that fails backs off like a main one.
		for _, pod := range []string{"Always; main m", "Always; init m; main n", "Always; main m; forgetful"} {
			t.Run(tc.name+"/"+pod, func(t *testing.T) {
				pod, forgetful := strings.CutSuffix(pod, "; forgetful")
				in := plan.Input{Pod: parsePod(t, pod), Backoff: tc.backoff, Now: now}
				// A forgetful agent is restarted after each computation.
				keep := func(got plan.Actions) {
					if !forgetful {
						in.Crashes = got.Crashes
					}
				}
				var recorded time.Duration // with the instance that runs
				for i, life := range tc.lives {
					in.Now = in.Now.Add(life.ran)
					in.Status = parseStatus(t, "sandbox 0 ready; m#0 exited code=1")
					dead := &in.Status.Containers[0]
					dead.ID.ID, dead.RestartCount = "m"+string(rune('a'+i)), int32(i)
					dead.StartedAt, dead.FinishedAt, dead.Backoff = in.Now.Add(-life.ran), in.Now, recorded

					if life.wait > 0 {
						for _, passed := range []time.Duration{0, life.wait / 2, life.wait - 1} {
							in.Now = dead.FinishedAt.Add(passed)
							got := plan.Compute(in)
							assert.Empty(t, got.Start, "instance %d", i)
							assert.Equal(t, life.wait-passed, got.RetryAfter, "instance %d", i)
							assert.Equal(t, v1.ContainerStateWaiting{
								Reason: "CrashLoopBackOff",
								Message: "back-off " + life.wait.String() +
									" restarting failed container=m pod=web_default(u1)",
							}, got.Waiting["m"])
							keep(got)
						}
						in.Now = dead.FinishedAt.Add(life.wait)
					}
					for range 3 { // it is due until it stands, and counts once
						got := plan.Compute(in)
						require.Len(t, got.Start, 1, "instance %d", i)
						assert.Equal(t, int32(i+1), got.Start[0].RestartCount)
						assert.Zero(t, got.RetryAfter)
						keep(got)
						if next := got.Start[0].Backoff; forgetful {
							recorded = next
						}
					}
				}
			})
		}
	}
}

// What was recorded with an instance of another definition does not delay its successor.
func TestARecordedBackoffIsForItsDefinition(t *testing.T) {
	in := plan.Input{Pod: parsePod(t, "Always; main m"), Now: now,
		Status: parseStatus(t, "sandbox 0 ready; m#3 exited code=1 ago=1s")}
	in.Status.Containers[0].Backoff = time.Hour
	got := plan.Compute(in)
	assert.Equal(t, 5*time.Minute-time.Second, got.RetryAfter, "not longer than the longest back-off")
	in.Pod.Spec.Containers[0].Image = "other"
	got = plan.Compute(in)
	require.Len(t, got.Start, 1)
	assert.Equal(t, 10*time.Second, got.Start[0].Backoff)

	in = plan.Input{Pod: parsePod(t, "Always; main m liveness"), Now: now,
		Status: parseStatus(t, "sandbox 0 ready; m#3 running ran=1s; m#2 exited ago=2s"),
		Probes: parseProbes("m#3 liveness")}
	in.Status.Containers[0].Backoff = 40 * time.Second
	got = plan.Compute(in)
	assert.Equal(t, 38*time.Second, got.RetryAfter, "also after a kill")
	assert.Contains(t, got.Waiting["m"].Message, "back-off 40s")
}

// step is one computation of a scenario. after is the time since the one before;
// edit changes the pod first.
type step struct {
	after  time.Duration
	edit   func(*v1.Pod)
	status string
	probes string
	want   string
}

// In scenarios "ago" counts from the time of the step.
func TestBackoffScenarios(t *testing.T) {
	for _, tc := range []struct {
		name, pod string
		steps     []step
	}{
		{
			name: "liveness: no wait for one that ran longer than the delay",
			pod:  "Always; main m liveness",
			steps: []step{
				{status: "m#0 running ran=30s", probes: "m#0 liveness", want: "kill m#0 LivenessProbe; start m#1"},
				{status: "m#1 running ran=30s; m#0 exited ago=30s", probes: "m#1 liveness", want: "kill m#1 LivenessProbe; start m#2"},
				{status: "m#2 running ran=30s; m#1 exited ago=30s", probes: "m#2 liveness", want: "kill m#2 LivenessProbe; start m#3"},
				{status: "m#3 running ran=30s; m#2 exited ago=30s", probes: "m#3 liveness", want: "kill m#3 LivenessProbe; start m#4"},
				// 40 seconds now: killed, and held back for the rest of them, ...
				{status: "m#4 running ran=30s; m#3 exited ago=30s", probes: "m#4 liveness", want: "kill m#4 LivenessProbe; wait m; retry 10s"},
				// ... which count from its own end once that is known.
				{after: time.Second, status: "m#4 exited ago=1s; m#3 exited ago=31s", want: "wait m; retry 39s"},
				{after: 39 * time.Second, status: "m#4 exited ago=40s", want: "start m#5"},
			},
		},
		{
			name: "liveness: killed after a long life",
			pod:  "Always; main m liveness",
			steps: []step{
				{status: "m#0 exited", want: "start m#1"},
				{status: "m#1 running ran=10m; m#0 exited ago=10m", probes: "m#1 liveness", want: "kill m#1 LivenessProbe; start m#2"},
				{status: "m#2 exited ago=4s; m#1 exited ago=5s", want: "wait m; retry 6s"},
			},
		},
		{
			name: "a new image starts at once and anew",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#0 exited ago=0s", want: "start m#1"},
				{status: "m#1 exited ago=0s", want: "wait m; retry 10s"},
				{
					edit:   func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "image:newer" },
					status: "m#1 exited ago=1s", want: "start m#2",
				},
				{status: "m#2 exited ago=0s", want: "wait m; retry 10s"},
			},
		},
		{
			name: "and so do new resources",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#0 exited ago=0s", want: "start m#1"},
				{status: "m#1 exited ago=0s", want: "wait m; retry 10s"},
				{
					edit: func(pod *v1.Pod) {
						pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
							v1.ResourceMemory: resource.MustParse("1Gi")}
					},
					status: "m#1 exited ago=1s", want: "start m#2",
				},
			},
		},
		{
			name: "an instance that could not be started counts as one that exited",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#0 exited ago=0s", want: "start m#1"},
				{status: "m#1 created; m#0 exited ago=1s", want: "wait m; retry 9s"},
				{status: "m#1 created; m#0 exited ago=10s", want: "start m#2"},
				{status: "m#2 created; m#1 created; m#0 exited ago=11s", want: "wait m; retry 9s"},
			},
		},
		{
			name: "the earliest of several",
			pod:  "Always; main m; main n; main o",
			steps: []step{
				{status: "m#0 exited; n#0 exited; o#0 running", want: "start m#1; start n#1"},
				{status: "m#1 exited ago=2s; n#1 exited ago=5s; o#0 running", want: "wait m; wait n; retry 5s"},
			},
		},
		{
			name: "what waits does keep the pod alive",
			pod:  "OnFailure; sidecar s; main m; main n",
			steps: []step{
				{status: "s#0 running; m#0 exited code=1; n#0 exited", want: "start m#1"},
				{status: "s#0 running; m#1 exited code=1 ago=0s; n#0 exited", want: "wait m; retry 10s"},
				{status: "s#0 exited; m#1 exited code=1 ago=1s; n#0 exited", want: "start s#1; wait m; retry 9s"},
			},
		},
		{
			name: "an init container runs again in a new sandbox, at once after the first exit",
			pod:  "Always; init a; main m",
			steps: []step{
				{status: "sandbox 1 ready; a#0@0 exited ago=0s", want: "start a#1"},
				{status: "sandbox 1 ready; a#1 running; a#0@0 exited ago=1s", want: ""},
				{status: "sandbox 2 ready; a#1@1 exited ago=0s; a#0@0 exited ago=2s", want: "wait a; retry 10s"},
			},
		},
		{
			name: "the sandboxes of months do not add up for an init container",
			pod:  "Always; init a; main m",
			steps: []step{
				{status: "sandbox 1 ready; a#0@0 exited ago=0s", want: "start a#1"},
				{status: "sandbox 2 ready; a#1@1 exited ago=10s", want: "start a#2"},
				{status: "sandbox 3 ready; a#2@2 exited ago=10m19s", want: "start a#3"},
				{status: "sandbox 4 ready; a#3@3 exited ago=0s", want: "wait a; retry 40s"},
				{status: "sandbox 4 ready; a#3@3 exited ago=10m40s", want: "start a#4"},
				{status: "sandbox 5 ready; a#4@4 exited ago=0s", want: "wait a; retry 10s"},
			},
		},
		{
			name: "an init container that kills its sandbox again and again, and seems to have succeeded",
			pod:  "Always; init a; main m",
			steps: []step{
				{status: "sandbox 0 dead; a#0 exited ago=0s", want: "kill pod; sandbox 1; start a#1"},
				{status: "sandbox 1 dead; sandbox 0 dead; a#1 exited ago=0s; a#0@0 exited", want: "kill pod; sandbox 2; wait a; retry 10s"},
				{status: "sandbox 2 ready; sandbox 1 dead; a#1@1 exited ago=10s", want: "start a#2"},
				{status: "sandbox 2 dead; sandbox 1 dead; a#2 exited ago=0s", want: "kill pod; sandbox 3; wait a; retry 20s"},
			},
		},
		{
			name: "after a restart of the agent nothing waits",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#20 exited code=1 ago=0s", want: "start m#21"},
				{status: "m#21 exited code=1 ago=0s", want: "wait m; retry 10s"},
			},
		},
		{
			name: "the clock was set back",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#0 exited ago=0s", want: "start m#1"},
				{status: "m#1 exited ago=-1s", want: "wait m; retry 11s"},
				{after: -time.Hour, status: "m#1 exited ago=-1h", want: "start m#2"},
			},
		},
		{
			name: "history that was removed",
			pod:  "Always; main m",
			steps: []step{
				{status: "m#0 exited ago=0s", want: "start m#1"},
				{status: "", want: "start m#0"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { runScenario(t, tc.pod, tc.steps) })
	}
}

// A successor that was decided on is started, even if not at once and whatever
// the code with which the killed instance exits.
func TestOwedSuccessors(t *testing.T) {
	for _, tc := range []struct {
		name, pod string
		steps     []step
	}{
		{
			name: "changed under Never and the new image not there",
			pod:  "Never; main m",
			steps: []step{
				{status: "m#0 running image=old", want: "kill m#0 DefinitionChanged; start m#1"},
				{status: "m#0 exited code=137 image=old ago=1s", want: "start m#1"},
				{status: "m#0 exited code=137 image=old ago=99s", want: "start m#1"},
				{status: "m#1 running", want: ""},
				{status: "m#1 exited code=1", want: "kill pod"},
			},
		},
		{
			name: "unhealthy under OnFailure and decent enough to exit with 0",
			pod:  "OnFailure; main m liveness",
			steps: []step{
				{status: "m#0 running", probes: "m#0 liveness", want: "kill m#0 LivenessProbe; start m#1"},
				{status: "m#0 exited code=0 ago=0s", want: "start m#1"},
				{status: "m#1 running; m#0 exited", want: ""},
				{status: "m#1 exited code=0; m#0 exited", want: "kill pod"},
			},
		},
		{
			name: "unknown init container that exits with 0 when it is killed",
			pod:  "Always; init a; init b; main m",
			steps: []step{
				{status: "a#0 unknown", want: "kill a#0 Unknown; start a#1"},
				{status: "a#0 exited code=0", want: "start a#1"},
			},
		},
		{
			name: "stopped with its sandbox, which cannot be made again at once",
			pod:  "OnFailure; main m",
			steps: []step{
				{status: "sandbox 0 ready no-ip; m#0 running", want: "kill pod; sandbox 1; start m#1"},
				{status: "sandbox 0 dead; m#0 exited code=0", want: "kill pod; sandbox 1; start m#1"},
				{status: "sandbox 1 ready; m#0@0 exited code=0", want: "start m#1"},
			},
		},
		{
			name: "stopped with its sandbox and init containers to come first",
			pod:  "OnFailure; init a; main m; main n",
			steps: []step{
				{status: "sandbox 0 ready no-ip; a#0 exited; m#0 running; n#0 exited", want: "kill pod; sandbox 1; start a#1"},
				{status: "sandbox 1 ready; a#1 running; a#0@0 exited; m#0@0 exited; n#0@0 exited", want: ""},
				{status: "sandbox 1 ready; a#1 exited; a#0@0 exited; m#0@0 exited; n#0@0 exited", want: "start m#1"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { runScenario(t, tc.pod, tc.steps) })
	}
}

func runScenario(t *testing.T, podText string, steps []step) {
	in := plan.Input{Pod: parsePod(t, podText), Now: now}
	for i, step := range steps {
		if step.edit != nil {
			in.Pod = in.Pod.DeepCopy()
			step.edit(in.Pod)
		}
		in.Now = in.Now.Add(step.after)
		in.Probes = parseProbes(step.probes)
		text := step.status
		if len(text) < 7 || text[:7] != "sandbox" {
			text = "sandbox 0 ready; " + text
		}
		in.Status = parseStatus(t, text)
		shift(in.Status, in.Now.Sub(now))

		handedIn := maps.Clone(in.Crashes)
		got := plan.Compute(in)
		require.Equal(t, step.want, transcript(got), "step %d", i)
		require.Equal(t, handedIn, in.Crashes, "step %d: what was handed in has been changed", i)
		in.Crashes = got.Crashes
	}
}

// shift moves all times of the status.
func shift(status *runtime.PodStatus, by time.Duration) {
	for i := range status.Containers {
		n := &status.Containers[i]
		for _, at := range []*time.Time{&n.StartedAt, &n.FinishedAt} {
			if !at.IsZero() {
				*at = at.Add(by)
			}
		}
	}
}
