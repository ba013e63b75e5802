package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func TestMainContainers(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "exited under Always",
			pod:    "Always; main m; main n",
			status: "sandbox 0 ready; m#3 exited; n#0 running",
			want:   "start m#4",
		},
		{
			name:   "succeeded under OnFailure",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 ready; m#0 exited; n#0 running",
			want:   "",
		},
		{
			name:   "failed under OnFailure",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 ready; m#0 exited code=1; n#0 running",
			want:   "start m#1",
		},
		{
			name:   "out of memory but for the first process",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 ready; m#0 exited oom; n#0 running",
			want:   "",
		},
		{
			name:   "failed under Never",
			pod:    "Never; main m; main n",
			status: "sandbox 0 ready; m#0 exited code=1; n#0 running",
			want:   "",
		},
		{
			name:   "own policy comes before the pod's",
			pod:    "Never; main m policy=Always; main n policy=OnFailure; main o; main p",
			status: "sandbox 0 ready; m#0 exited; n#0 exited code=1; o#0 exited code=1; p#0 running",
			want:   "start m#1; start n#1",
		},
		{
			name:   "own policy Never",
			pod:    "Always; main m policy=Never; main n",
			status: "sandbox 0 ready; m#0 exited code=1; n#0 running",
			want:   "",
		},
		{
			name:   "a rule for its exit code",
			pod:    "Always; main m policy=Never rule=42; main n policy=Never rule=42; main o",
			status: "sandbox 0 ready; m#0 exited code=42; n#0 exited code=1; o#0 running",
			want:   "start m#1",
		},
		{
			name:   "the newest instance counts",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 ready; m#1 exited; m#0 exited code=1; n#0 running",
			want:   "",
		},
		{
			name:   "created but never started",
			pod:    "Never; main m; main n",
			status: "sandbox 0 ready; m#0 created; n#0 running",
			want:   "start m#1",
		},
		{
			name:   "unknown",
			pod:    "Never; main m; main n",
			status: "sandbox 0 ready; m#0 unknown; n#0 running",
			want:   "kill m#0 Unknown; start m#1",
		},
		{
			name:   "never created under Never",
			pod:    "Never; main m; main n",
			status: "sandbox 0 ready; m#0 exited",
			want:   "start n#0",
		},
		{
			name:   "all done under OnFailure",
			pod:    "OnFailure; main m; main n",
			status: "sandbox 0 ready; m#0 exited; n#0 exited",
			want:   "kill pod",
		},
		{
			name:   "all done under Never",
			pod:    "Never; main m; main n; ephemeral e",
			status: "sandbox 0 ready; m#0 exited; n#0 exited code=1",
			want:   "kill pod",
		},
		{
			name:   "a deleted pod keeps what runs and restarts nothing",
			pod:    "Always deleted; main m; main n; ephemeral e",
			status: "sandbox 0 ready; m#0 exited; n#0 running",
			want:   "",
		},
		{
			name:   "a deleted pod of which nothing runs is done",
			pod:    "Always deleted; sidecar s; main m",
			status: "sandbox 0 ready; s#0 running; m#0 exited",
			want:   "kill pod",
		},
	})
}

func TestProbeFailures(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "liveness under Always",
			pod:    "Always; main m liveness; main n liveness",
			status: "sandbox 0 ready; m#0 running; n#0 running",
			probes: "m#0 liveness",
			want:   "kill m#0 LivenessProbe; start m#1",
		},
		{
			name:   "startup under OnFailure",
			pod:    "OnFailure; main m startup",
			status: "sandbox 0 ready; m#0 running",
			probes: "m#0 startup",
			want:   "kill m#0 StartupProbe; start m#1",
		},
		{
			name:   "under Never",
			pod:    "Never; main m liveness; main n",
			status: "sandbox 0 ready; m#0 running; n#0 running",
			probes: "m#0 liveness",
			want:   "kill m#0 LivenessProbe",
		},
		{
			name:   "under Never and nothing else runs",
			pod:    "Never; main m liveness; main n",
			status: "sandbox 0 ready; m#0 running; n#0 exited",
			probes: "m#0 liveness",
			want:   "kill pod",
		},
		{
			name:   "under its own policy",
			pod:    "Never; main m liveness policy=OnFailure; main n liveness policy=Never rule=137; main o",
			status: "sandbox 0 ready; m#0 running; n#0 running; o#0 running",
			probes: "m#0 liveness; n#0 liveness",
			want:   "kill m#0 LivenessProbe; kill n#0 LivenessProbe; start m#1",
		},
		{
			name:   "a container without such a probe is not asked about",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#0 running",
			probes: "m#0 liveness",
			want:   "",
		},
		{
			name:   "the failure of an earlier instance says nothing",
			pod:    "Always; main m liveness",
			status: "sandbox 0 ready; m#1 running; m#0 exited",
			probes: "m#0 liveness",
			want:   "",
		},
	})
}

func TestChangedDefinition(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "that container alone is replaced",
			pod:    "Always; main m; main n",
			status: "sandbox 0 ready; m#0 running image=old; n#0 running",
			want:   "kill m#0 DefinitionChanged; start m#1",
		},
		{
			name:   "under Never too",
			pod:    "Never; main m",
			status: "sandbox 0 ready; m#0 running image=old",
			want:   "kill m#0 DefinitionChanged; start m#1",
		},
		{
			name:   "one that is dead follows its policy",
			pod:    "Never; main m; main n",
			status: "sandbox 0 ready; m#0 exited image=old; n#0 running",
			want:   "",
		},
		{
			name:   "a hash that was not recorded is no change",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#0 running image=unrecorded",
			want:   "",
		},
		{
			name:   "an earlier instance does not matter",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#1 running; m#0 exited image=old",
			want:   "",
		},
	})
}

func TestEphemeralContainers(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "beside what runs",
			pod:    "Always; main m; ephemeral e target=m",
			status: "sandbox 0 ready; m#0 running",
			want:   "start e#0",
		},
		{
			name:   "before initialisation is over",
			pod:    "Always; init a; main m; ephemeral e",
			status: "sandbox 0 ready; a#0 running",
			want:   "start e#0",
		},
		{
			name:   "not before there is a sandbox",
			pod:    "Always; main m; ephemeral e",
			status: "",
			want:   "sandbox 0; start m#0",
		},
		{
			name:   "never again",
			pod:    "Always; main m; ephemeral e; ephemeral f; ephemeral g",
			status: "sandbox 0 ready; m#0 running; e#0 exited code=1; f#0 created; g#0 unknown",
			want:   "",
		},
		{
			name:   "nor in another sandbox",
			pod:    "Always; main m; ephemeral e",
			status: "sandbox 1 ready; m#1 running; e#0@0 exited; m#0@0 exited",
			want:   "",
		},
		{
			name:   "does not keep a pod alive",
			pod:    "Never; main m; ephemeral e",
			status: "sandbox 0 ready; m#0 exited; e#0 running",
			want:   "kill pod",
		},
	})
}

func TestStrays(t *testing.T) {
	runCases(t, []planCase{
		{
			name:   "not in the spec any more",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#0 running; gone#0 running; gone-too#0 exited",
			want:   "kill gone#0 Obsolete",
		},
		{
			name:   "a second instance",
			pod:    "Always; main m",
			status: "sandbox 0 ready; m#1 running; m#0 running",
			want:   "kill m#0 Obsolete",
		},
		{
			name:   "left in another sandbox",
			pod:    "Always; main m",
			status: "sandbox 1 ready; sandbox 0 dead; m#0@0 running",
			want:   "kill m#0 Obsolete; start m#1",
		},
		{
			name:   "left in another sandbox under Never",
			pod:    "Never; main m; main n",
			status: "sandbox 1 ready; sandbox 0 dead; m#0@0 running",
			want:   "kill m#0 Obsolete; start n#0",
		},
		{
			name:   "left in another sandbox before initialisation",
			pod:    "Always; init a; main m",
			status: "sandbox 1 ready; sandbox 0 dead; m#0@0 running; a#0@0 running",
			want:   "kill m#0 Obsolete; kill a#0 Obsolete; start a#1",
		},
	})
}

// The time for a pod with many instances is in proportion to their number.
func TestManyStrays(t *testing.T) {
	const many = 60_000
	one, other := strings.Repeat("x", 62)+"a", strings.Repeat("x", 62)+"b"
	pod := parsePod(t, "Always; main "+one+"; main "+other)
	status := parseStatus(t, "sandbox 0 ready")
	for i := range 2 * many {
		c := runtime.ContainerStatus{Container: runtime.Container{
			ID: runtime.ContainerID{ID: fmt.Sprint(i)}, Name: one, SandboxID: status.Sandboxes[0].ID,
			State: runtime.ContainerExited,
		}}
		if i >= many {
			c.Name, c.State = other, runtime.ContainerRunning
		}
		status.Containers = append(status.Containers, c)
	}
	var got plan.Actions
	took := testenv.CPUTime(t, func() { got = plan.Compute(plan.Input{Pod: pod, Status: status, Now: now}) })
	assert.Less(t, took, 5*time.Second, "a quadratic cost takes longer")
	assert.Len(t, got.Kill, many-1)
}

// The texts are kubelet's, which differ for init containers.
func TestKillMessages(t *testing.T) {
	for status, want := range map[string][2]string{
		"a#0 running image=old; m#0 running image=old": {"Init container a definition changed", "Container m definition changed, will be restarted"},
		"a#0 unknown; m#0 unknown": {
			`Init container is in "unknown" state, try killing it before restart`,
			`Container is in "unknown" state, try killing it before restart`,
		},
	} {
		got := plan.Compute(plan.Input{Pod: parsePod(t, "Always; sidecar a; main m"),
			Status: parseStatus(t, "sandbox 0 ready; "+status), Now: now})
		require.Len(t, got.Kill, 2, status)
		assert.Equal(t, want, [2]string{got.Kill[0].Message, got.Kill[1].Message})
	}
}

// What is handed to the one who acts, beyond the names.
func TestDetails(t *testing.T) {
	pod := parsePod(t, "Always; main m liveness; main n liveness; ephemeral e target=m")
	thirty, five := int64(30), int64(5)
	pod.Spec.TerminationGracePeriodSeconds = &thirty
	pod.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = &five
	in := plan.Input{
		Pod:    pod,
		Status: parseStatus(t, "sandbox 4 ready; m#0 running; n#0 running"),
		Probes: parseProbes("m#0 liveness; n#0 liveness"),
		Now:    now,
	}
	got := plan.Compute(in)
	assert.Equal(t, "sb4", got.SandboxID)
	assert.Equal(t, uint32(4), got.Attempt)
	require.Len(t, got.Kill, 2)
	assert.Equal(t, "Container m failed liveness probe, will be restarted", got.Kill[0].Message)
	assert.Equal(t, int64(5), got.Kill[0].GracePeriod, "the probe's own")
	assert.Equal(t, int64(30), got.Kill[1].GracePeriod, "the pod's")
	require.Len(t, got.Start, 3)
	assert.Equal(t, "m", got.Start[0].Target)
	assert.Same(t, &pod.Spec.Containers[0], got.Start[1].Container)

	pod.Spec.Containers[0].Image = "image:newer"
	got = plan.Compute(in)
	assert.Equal(t, "Container m definition changed, will be restarted", got.Kill[0].Message)
	assert.Equal(t, int64(30), got.Kill[0].GracePeriod)

	one := int64(1)
	pod.DeletionGracePeriodSeconds = &one
	pod.Spec.Containers[0].Image = currentImage
	assert.Equal(t, int64(1), plan.Compute(in).Kill[0].GracePeriod, "deletion comes first")

	in.Status = nil
	assert.Equal(t, "sandbox 0; start m#0; start n#0", transcript(plan.Compute(in)), "no status is an empty one")
}
