package terminal

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// causeOf returns why the newest instance of a container, which has ended as t, did not end by itself: the node has
// stopped it, or the kernel has killed a process of it. It returns "" if past, the oldest entry first, has nothing of
// it.
func causeOf(container string, t *v1.ContainerStateTerminated, past []history.Entry) string {
	for i := range slices.Backward(past) {
		r := &past[i].Record
		if r.Container != container {
			continue
		}
		switch {
		case r.Kind == runtime.KindStartContainer && r.Stage == runtime.StageDone && r.Error == "":
			return "" // what is older is about other instances
		case r.Kind == runtime.KindOOMKill && t.Reason != "OOMKilled":
			return "the kernel has killed a process of it for lack of memory"
		case r.Kind == runtime.KindStopContainer && r.Stage == runtime.StageDecided && r.Reason != "Requested":
			// another record has the reason
			if _, cause, ok := strings.Cut(history.Sentence(*r), ": "); ok {
				return stopped(cause, failureBefore(past[:i], r))
			}
		case r.Kind == runtime.KindProbe && r.Error != "" && r.Reason != "Readiness": // the pod may have ended with it
			return stopped("its "+strings.ToLower(r.Reason)+" probe has failed", r.Error)
		}
	}
	return ""
}

func stopped(cause, failure string) string {
	if failure != "" {
		cause += " (" + OneLine(failure) + ")"
	}
	return "it was stopped: " + cause
}

// failureBefore returns the error of the hook or of the probe for which a container is stopped, "" if past does not
// have it.
func failureBefore(past []history.Entry, stop *runtime.Record) string {
	for i := range slices.Backward(past) {
		r := &past[i].Record
		switch {
		case r.Container != stop.Container || r.Error == "":
		case r.Kind == runtime.KindPostStart && stop.Reason == "PostStartHookError",
			r.Kind == runtime.KindProbe && r.Reason+"Probe" == stop.Reason: // Liveness and Startup
			return r.Error
		}
	}
	return ""
}
