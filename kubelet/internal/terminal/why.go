package terminal

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Why returns in one line why a pod of the node is not running, or that it is. events are its latest
// ones and past the entries of its history, the oldest first.
func Why(pod *v1.Pod, events []runtime.Event, past []history.Entry, now time.Time) string {
	s := Summarize(pod)
	st := &pod.Status
	switch {
	case pod.DeletionTimestamp != nil && !podspec.IsPhaseTerminal(st.Phase):
		text := "Terminating"
		if left := pod.DeletionTimestamp.Sub(now); left > 0 {
			text += ": its grace period ends in " + duration.HumanDuration(left)
		} else {
			text += fmt.Sprintf(": its grace period ended %s ago", duration.HumanDuration(-left))
		}
		return join(text, "", cmp.Or(warning(events, "FailedKillPod"), last(events, "WaitingForStep")))
	case st.Phase == v1.PodSucceeded:
		return "Succeeded: all containers have ended with exit code 0"
	case st.Phase == v1.PodFailed:
		text := join("Failed", st.Reason, st.Message)
		if text == "Failed" {
			text = cmp.Or(failure("Failed", pod, past), text)
		}
		return text
	case st.Reason != "" || st.Message != "": // refused, or it waits for another pod
		return join("Not running", st.Reason, st.Message)
	}
	if text := failure("Not running", pod, past); text != "" {
		return text
	}
	if s.Ready < s.Total || st.Phase == v1.PodPending || st.Phase == "" {
		return notReady(pod, s, events)
	}
	return fmt.Sprintf("Running: %d of %d containers are ready", s.Ready, s.Total)
}

// failure returns the state of the first container that waits or has failed, "" if there is none. what
// is the state of the pod.
func failure(what string, pod *v1.Pod, past []history.Entry) string {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			c := &list[i]
			text := what + ": container " + c.Name
			switch w, t := c.State.Waiting, c.State.Terminated; {
			case w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" && w.Reason != "":
				if last := c.LastTerminationState.Terminated; last != nil {
					text += " " + exit(last, causeOf(c.Name, last, past))
					if message := strings.TrimSpace(last.Message); message != "" {
						// the last line, which says most if the message is a log
						text += " (" + OneLine(message[strings.LastIndexByte(message, '\n')+1:]) + ")"
					}
					text += ", and"
				}
				// Kubelet's message of a back-off goes on with the names of the container and the pod.
				message, _, _ := strings.Cut(w.Message, " restarting failed container=")
				return join(text+" waits", w.Reason, message)
			case t != nil && t.ExitCode != 0:
				return join(text+" "+exit(t, causeOf(c.Name, t, past)), "", t.Message)
			}
		}
	}
	return ""
}

// exit returns how a container ended. cause is why, if it did not end by itself.
func exit(t *v1.ContainerStateTerminated, cause string) string {
	text := fmt.Sprintf("has ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text += ", " + t.Reason
	}
	if cause != "" {
		text += ": " + cause
	}
	return text
}

// notReady returns what the pod waits for while no container has failed.
func notReady(pod *v1.Pod, s Summary, events []runtime.Event) string {
	started, ended := 0, 0
	for i := range pod.Status.ContainerStatuses {
		switch state := &pod.Status.ContainerStatuses[i].State; {
		case state.Running != nil:
			started++
		case state.Terminated != nil:
			ended++
		}
	}
	if started == 0 {
		what := "it is starting"
		if ended > 0 && ended == len(pod.Status.ContainerStatuses) {
			what = "all containers have ended"
		}
		return join("Not running: "+what+" ("+s.Status+")", "", cmp.Or(s.Message, warning(events, "")))
	}
	var unready []string
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	return join("Running, but not ready: "+strings.Join(unready, ", "), "", warning(events, "Unhealthy"))
}

// warning returns the message of the latest warning of that reason, of any if it is "".
func warning(events []runtime.Event, reason string) string {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Type == v1.EventTypeWarning && (reason == "" || events[i].Reason == reason) {
			return events[i].Message
		}
	}
	return ""
}

// last returns the message of the latest event if that has the reason: what it says holds now.
func last(events []runtime.Event, reason string) string {
	if n := len(events); n > 0 && events[n-1].Reason == reason {
		return events[n-1].Message
	}
	return ""
}

// join returns the text with a reason and a message behind it, if there are any.
func join(text, reason, message string) string {
	for _, more := range []string{reason, OneLine(message)} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// OneLine returns the text with a single space in place of each run of white space.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// IsProblem reports whether a record is about something that is not as it should be.
func IsProblem(r *runtime.Record) bool {
	switch r.Kind {
	case runtime.KindContainerExited:
		return r.ExitCode != 0
	case runtime.KindContainerUnknown, runtime.KindSandboxDied, runtime.KindOOMKill, runtime.KindRefuse,
		runtime.KindReject, runtime.KindFail, runtime.KindEvict:
		return true
	case runtime.KindUpdate: // the error has the fields that do not act
		return false
	default:
		return r.Error != ""
	}
}
