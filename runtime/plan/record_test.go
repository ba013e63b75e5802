package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Each decision has its reason.
func TestRecords(t *testing.T) {
	for name, tc := range map[string]struct{ pod, status, probes, want string }{
		"nothing to do": {"Always; main m", "sandbox 0 ready; m#0 running", "", ""},
		"a new pod":     {"Always; main m", "", "", "CreateSandbox 0 New; StartContainer m 0 New"},
		"a failed liveness probe": {
			"Always; main m liveness", "sandbox 0 ready; m#2 running", "m#2 liveness",
			"StopContainer m 2 LivenessProbe (Container m failed liveness probe, will be restarted) 30s; " +
				"StartContainer m 3 LivenessProbe",
		},
		"another image":   {"Always; main m", "sandbox 0 ready; m#0 running image=old", "", "StopContainer m 0 DefinitionChanged (Container m definition changed, will be restarted) 30s; StartContainer m 1 DefinitionChanged"},
		"an exit":         {"Always; main m", "sandbox 0 ready; m#0 exited code=3", "", "StartContainer m 1 Exited (code 3)"},
		"out of memory":   {"Always; main m", "sandbox 0 ready; m#0 exited code=137 oom", "", "StartContainer m 1 Exited (code 137, OOMKilled)"},
		"never started":   {"Always; main m", "sandbox 0 ready; m#0 created", "", "StartContainer m 1 NotStarted"},
		"a lost sandbox":  {"Always; main m", "sandbox 0 dead; m#0 running", "", "CreateSandbox 1 SandboxDied; StartContainer m 1 SandboxChanged"},
		"two sandboxes":   {"Always; main m", "sandbox 1 ready; sandbox 0 ready; m#0 running", "", "CreateSandbox 2 SeveralSandboxes; StartContainer m 1 SandboxChanged"},
		"another network": {"Always host; main m", "sandbox 0 ready; m#0 running", "", "CreateSandbox 1 NamespacesChanged; StartContainer m 1 SandboxChanged"},
		"only a sidecar":  {"Never; sidecar s; main m", "sandbox 0 ready; s#0 running; m#0 exited", "", "StopPod 0 Finished"},
		"finished":        {"Never; main m", "sandbox 0 dead; m#0 exited", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Pod: parsePod(t, tc.pod), Status: parseStatus(t, tc.status),
				Probes: parseProbes(tc.probes), Now: now}
			assert.Equal(t, tc.want, recorded(t, plan.Records(in, plan.Compute(in))))
		})
	}
}

// A back-off is recorded when it begins, and not again while it lasts.
func TestRecordOfABackOff(t *testing.T) {
	in := plan.Input{Pod: parsePod(t, "Always; main m; main n"),
		Status: parseStatus(t, "sandbox 0 ready; m#0 exited code=1; n#0 running"), Now: now}
	in.Crashes = plan.Compute(in).Crashes
	in.Status = parseStatus(t, "sandbox 0 ready; m#1 exited code=2 ago=1s; n#0 running")
	second := plan.Compute(in)
	assert.Equal(t, "BackOff m 0 CrashLoopBackOff (code 2) 10s", recorded(t, plan.Records(in, second)))
	in.Crashes, in.Now = second.Crashes, now.Add(5*time.Second)
	assert.Empty(t, plan.Records(in, plan.Compute(in)))
}

// recorded writes decisions as text.
func recorded(t *testing.T, records []runtime.Record) string {
	var out []string
	for _, r := range records {
		assert.Equal(t, runtime.StageDecided, r.Stage)
		assert.Equal(t, "web", r.Pod.Name)
		s := strings.Join(strings.Fields(fmt.Sprintf("%s %s %d %s", r.Kind, r.Container, r.Attempt, r.Reason)), " ")
		if r.Message != "" {
			s += " (" + r.Message + ")"
		}
		if r.Duration != 0 {
			s += " " + r.Duration.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}
