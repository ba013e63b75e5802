package history_test

import (
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A history answers why a container runs for the second time.
func Example() {
	h, err := history.New(history.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := runtime.PodRef{UID: "123", Namespace: "default", Name: "web"}

	// The parts of an agent record; here, what they record when a probe fails.
	h.Record(runtime.Record{Pod: web, Stage: runtime.StageDecided, Kind: runtime.KindProbe, Container: "main",
		Reason: "Liveness",
		Error:  "HTTP probe failed with statuscode: 500"})
	h.Record(runtime.Record{Pod: web, Stage: runtime.StageDecided, Kind: runtime.KindStopContainer, Container: "main",
		Reason:   "LivenessProbe",
		Duration: 30 * time.Second})
	h.Record(runtime.Record{Pod: web, Stage: runtime.StageSeen, Kind: runtime.KindContainerExited,
		Source: runtime.SourceEvent, Container: "main",
		ExitCode: 143})
	h.Record(runtime.Record{Pod: web, Stage: runtime.StageDecided, Kind: runtime.KindStartContainer, Container: "main",
		Attempt: 1,
		Reason:  "LivenessProbe"})

	for _, e := range h.Entries(web.UID) {
		fmt.Println(history.Sentence(e.Record))
	}
	// Output:
	// Liveness probe of container main fails: HTTP probe failed with statuscode: 500
	// Container main is to be stopped within 30s: its liveness probe has failed
	// Container main exited with code 143
	// Container main is to be started again, restart 1: its liveness probe has failed
}
