package runtime_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// An event that is repeated ten times reaches the function four times.
func ExampleMergeEvents() {
	emit := runtime.MergeEvents(func(e runtime.Event) {
		fmt.Printf("%s %s: %s (x%d)\n", e.Pod.Name, e.Reason, e.Message, e.Count)
	})
	web := runtime.PodRef{UID: "1", Namespace: "default", Name: "web"}
	for range 10 {
		emit.Emit(runtime.Event{Pod: web, Type: "Warning", Reason: "BackOff", Message: "Back-off pulling image"})
	}
	emit.Emit(runtime.Event{Pod: web, Type: "Normal", Reason: "Pulled", Message: "Successfully pulled image"})
	// Output:
	// web BackOff: Back-off pulling image (x1)
	// web BackOff: Back-off pulling image (x2)
	// web BackOff: Back-off pulling image (x4)
	// web BackOff: Back-off pulling image (x8)
	// web Pulled: Successfully pulled image (x1)
}
