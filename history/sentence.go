package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Sentence describes a record in one line for people, without its pod, its stage and its
// time. The line has texts of the record as they are: a program that prints it escapes
// control characters.
func Sentence(r runtime.Record) string {
	var s string
	switch r.Stage {
	case runtime.StageSeen:
		s = seen(&r)
	case runtime.StageDecided:
		s = decided(&r)
	case runtime.StageDone:
		s = done(&r)
	}
	if s == "" { // a record of an embedder
		s = strings.TrimSpace(string(r.Kind) + " " + r.Container)
		s = with(with(with(s, ": ", r.Reason), ": ", r.Message), ": ", r.Error)
	}
	return s
}

// String returns the entry as one line: its time, how often it was repeated, its stage and its
// [Sentence], in which control characters are escaped.
func (e Entry) String() string {
	line := e.Last.UTC().Format(time.RFC3339)
	if e.Count > 1 {
		line += fmt.Sprintf(" (x%d since %s)", e.Count, e.First.UTC().Format(time.RFC3339))
	}
	line += " " + strings.ToLower(string(e.Stage))
	if e.Stage == runtime.StageSeen && e.Source != "" {
		line += " by " + strings.ToLower(string(e.Source))
	}
	quoted := strconv.Quote(strings.Join(strings.Fields(Sentence(e.Record)), " "))
	return line + ": " + strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// with appends the text after the separator, unless it is empty.
func with(s, separator, text string) string {
	if text == "" {
		return s
	}
	return s + separator + text
}

func seen(r *runtime.Record) string {
	switch r.Kind {
	case runtime.KindSandboxReady:
		return "The sandbox is ready"
	case runtime.KindSandboxDied:
		return "The sandbox has died"
	case runtime.KindContainerRunning:
		return "Container " + r.Container + " runs"
	case runtime.KindContainerExited:
		if r.Reason == runtime.ReasonGone {
			return "Container " + r.Container + " is gone from the runtime"
		}
		s := fmt.Sprintf("Container %s exited with code %d", r.Container, r.ExitCode)
		if r.Reason != "" {
			s += " (" + r.Reason + ")"
		}
		return with(s+after(r.Duration), ": ", r.Message)
	case runtime.KindContainerUnknown:
		return "The state of container " + r.Container + " is unknown"
	case runtime.KindOOMKill:
		s := "The kernel killed a process of the pod"
		if r.Container != "" {
			s = "The kernel killed a process of container " + r.Container
		}
		return with(s+" for lack of memory", ": ", r.Message)
	case runtime.KindAgentStarted:
		return "The agent was started again"
	}
	return ""
}

func decided(r *runtime.Record) string {
	switch r.Kind {
	case runtime.KindAdmit:
		return with("The pod is admitted", ", from source ", string(r.Source))
	case runtime.KindRefuse:
		return with("The pod is refused, "+r.Reason, ": ", r.Message)
	case runtime.KindReject:
		return with(with("A pod is rejected", ", from source ", string(r.Source)), ": ", r.Message)
	case runtime.KindUpdate:
		s := with("The pod was changed", " in ", r.Message)
		return with(s, "; these do not act on what runs: ", r.Error)
	case runtime.KindRecreate:
		return with("The pod is stopped and started again", ", because of changes in ", r.Message)
	case runtime.KindWithdraw:
		return "The pod is not desired any more"
	case runtime.KindFail:
		return with("The pod fails for good, "+r.Reason, ": ", r.Message)
	case runtime.KindWait:
		if r.Reason != "" {
			what := "The pod"
			if r.Container != "" {
				what = "Container " + r.Container
			}
			return with(what+" waits, "+r.Reason, ": ", r.Message)
		}
		return "The pod waits until another pod of its name has ended"
	case runtime.KindProbe:
		s := r.Reason + " probe of container " + r.Container
		if r.Error == "" {
			return s + " succeeds"
		}
		return s + " fails: " + r.Error
	case runtime.KindBackOff:
		return because(fmt.Sprintf("Container %s waits %s before the next attempt", r.Container, round(r.Duration)), r)
	case runtime.KindCreateSandbox:
		s := "A sandbox is to be created"
		if r.Attempt > 0 {
			s = fmt.Sprintf("Sandbox %d is to be created", r.Attempt)
		}
		return because(s, r)
	case runtime.KindPullImage:
		return "Image " + r.Message + " is to be pulled for container " + r.Container + pullCause(r)
	case runtime.KindStartContainer:
		s := "Container " + r.Container + " is to be started"
		if r.Attempt > 0 {
			s = fmt.Sprintf("Container %s is to be started again, restart %d", r.Container, r.Attempt)
		}
		return because(s, r)
	case runtime.KindStopContainer:
		return because("Container "+r.Container+" is to be stopped"+within(r.Duration), r)
	case runtime.KindResizeContainer:
		return "Container " + r.Container + " is to get other resources: " + r.Message
	case runtime.KindEvict:
		return with("The pod is evicted"+within(r.Duration), ": ", r.Message)
	case runtime.KindStopPod:
		return because("The pod is to be stopped"+within(r.Duration), r)
	}
	return ""
}

// pullCause returns the reason of a pull in words.
func pullCause(r *runtime.Record) string {
	switch r.Reason {
	case runtime.ReasonPullAlways:
		return ": its pull policy is Always"
	case runtime.ReasonImageAbsent:
		return ": it is not on the node"
	case runtime.ReasonImageNotPermitted:
		return ": the pod has not shown yet that it may use the image on the node"
	case runtime.ReasonImageRemoved:
		return ": it was removed " + round(r.Duration) + " ago, when no pod used it"
	}
	return with("", ": ", r.Reason)
}

// because appends the reason and the message of a decision. Reasons of this module become
// words.
func because(s string, r *runtime.Record) string {
	if cause := cause(r); cause != "" {
		return s + ": " + cause
	}
	if r.Reason == "Requested" {
		return s // another record has the reason
	}
	return with(with(s, ": ", r.Reason), ": ", r.Message)
}

// cause returns the reason of a decision in words, "" if it is not known here.
func cause(r *runtime.Record) string {
	switch r.Reason {
	case plan.ReasonNew:
		if r.Container == "" {
			return "the pod has none"
		}
		return "it has not run yet"
	case plan.ReasonExited:
		return with("it exited", " with ", r.Message)
	case plan.ReasonNotStarted:
		return "the last instance could not be started"
	case plan.ReasonLivenessProbe:
		return "its liveness probe has failed"
	case plan.ReasonStartupProbe:
		return "its startup probe has failed"
	case plan.ReasonUnknown:
		return "its state is unknown"
	case plan.ReasonResize:
		return "its resources have changed, which requires a restart"
	case plan.ReasonChanged:
		return "its definition has changed"
	case plan.ReasonSandboxChanged:
		return "the pod has a new sandbox"
	case plan.ReasonSandboxDied:
		return "the last one has died"
	case plan.ReasonNamespaces:
		return "the last one has not the network and the namespaces of the spec"
	case plan.ReasonSeveralSandboxes:
		return "the pod has more than one"
	case plan.ReasonFinished:
		return "its containers have finished"
	case "CrashLoopBackOff":
		return with("it keeps ending", ", last with ", r.Message)
	case "ImagePullBackOff":
		return "its image could not be pulled"
	case "PostStartHookError":
		return "its postStart hook has failed"
	case "Restart":
		return with("a client has requested a restart", " ", r.Message)
	case "Deleted": // this one and the following are reasons of podworkers
		return "it is deleted in the API"
	case "NotDesired", "Orphan":
		return "no source has it"
	case "Evicted":
		return "it is evicted"
	case "Failed":
		return "it has failed for good"
	}
	return ""
}

func done(r *runtime.Record) string {
	var action, success string
	switch r.Kind {
	case runtime.KindCreateSandbox:
		action, success = "Creating the sandbox", "The sandbox is created"
	case runtime.KindPullImage:
		action, success = "Pulling image "+r.Message, "Image "+r.Message+" is pulled"
	case runtime.KindStartContainer:
		action, success = "Starting container "+r.Container, "Container "+r.Container+" is started"
	case runtime.KindStopContainer:
		action, success = "Stopping container "+r.Container, "Container "+r.Container+" is stopped"
	case runtime.KindResizeContainer:
		action, success = "Resizing container "+r.Container, "Container "+r.Container+" has other resources"
	case runtime.KindPostStart:
		action, success = "The postStart hook of container "+r.Container, "The postStart hook of container "+
			r.Container+" has ended"
	case runtime.KindPreStop:
		action, success = "The preStop hook of container "+r.Container, "The preStop hook of container "+
			r.Container+" has ended"
	case runtime.KindSync:
		action, success = "The "+r.Reason+" of the pod", "The "+r.Reason+" of the pod succeeds again"
	case runtime.KindStopPod:
		action, success = "Stopping the pod", "The pod is stopped"
	case runtime.KindRemovePod:
		action, success = "Removing the pod", "The pod is gone"
	case runtime.KindEvict:
		action, success = "The eviction for "+r.Reason, with("The eviction for "+r.Reason+" has ended the pod",
			", which has freed ", r.Message)
	case runtime.KindRotateLog:
		action, success = "Rotating the log of container "+r.Container, "The log of container "+
			r.Container+" is rotated"
	case runtime.KindRemoveCgroup:
		action, success = "Removing the cgroup of the pod", "The cgroup of the pod is removed"
	default:
		return ""
	}
	if r.Error != "" {
		return action + " failed" + after(r.Duration) + ": " + r.Error
	}
	return success + after(r.Duration)
}

func after(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " after " + round(d)
}

func within(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " within " + round(d)
}

// round returns the duration with three digits or so.
func round(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}
