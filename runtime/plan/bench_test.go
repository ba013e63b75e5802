package plan_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// A pod that is as it should be, which is what nearly all computations are about.
func BenchmarkComputeSteady(b *testing.B) {
	in := plan.Input{
		Pod:    parsePod(b, "Always; init a; sidecar s startup; main m liveness; main n"),
		Status: parseStatus(b, "sandbox 0 ready; a#0 exited; s#0 running; m#1 running; m#0 exited; n#0 running"),
		Probes: parseProbes("s#0 started"),
		Now:    now,
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := transcript(plan.Compute(in)); got != "" {
			b.Fatal(got)
		}
	}
}
