package ui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// tone is how a state is to be shown.
type tone string

const (
	good   tone = "good"
	bad    tone = "bad"
	waits  tone = "waits"
	ended  tone = "ended"
	normal tone = "normal"
)

// mostGone is the number of pods that are gone that the page lists.
const mostGone = 20

// podView is a pod in the list.
type podView struct {
	UID       types.UID  `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	Tone      tone       `json:"tone"`
	Ready     int        `json:"ready"`
	Total     int        `json:"total"`
	Restarts  int        `json:"restarts"`
	Restarted *time.Time `json:"restarted,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Gone      *time.Time `json:"gone,omitempty"`
	// Labels are those of the pod; they are set in a list only.
	Labels map[string]string `json:"labels,omitempty"`
	// Why is a sentence; in a list it is set for pods with a problem, and for those that wait.
	Why string `json:"why,omitempty"`
}

// list is the list of pods.
type list struct {
	Node     string            `json:"node"`
	Pods     []podView         `json:"pods"`
	Gone     []podView         `json:"gone"`
	Problems []control.Problem `json:"problems"`
}

// listOf returns the list. events are those of the pods that wait.
func listOf(pods []v1.Pod, gone []recent.Gone, broken []control.Problem, events map[types.UID][]runtime.Event,
	now time.Time,
) list {
	l := list{Pods: []podView{}, Gone: []podView{}, Problems: broken}
	sorted := make([]*v1.Pod, len(pods))
	for i := range pods {
		sorted[i] = &pods[i]
	}
	for _, pod := range terminal.SortPods(sorted) {
		l.Node = cmp.Or(l.Node, pod.Spec.NodeName)
		v := viewOf(pod, now)
		v.Labels = pod.Labels
		if v.Tone == bad || v.Tone == waits {
			v.Why = terminal.Why(pod, events[pod.UID], nil, now)
		}
		l.Pods = append(l.Pods, v)
	}
	for i := range gone[:min(mostGone, len(gone))] {
		v := viewOf(gone[i].Pod, now)
		v.Gone, v.Tone = &gone[i].At, ended
		l.Gone = append(l.Gone, v)
	}
	return l
}

func viewOf(pod *v1.Pod, now time.Time) podView {
	s := terminal.Summarize(pod)
	v := podView{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Status: s.Status, Tone: toneOf(pod, s),
		Ready: s.Ready, Total: s.Total, Restarts: s.Restarts,
	}
	if !s.LastRestart.IsZero() {
		v.Restarted = &s.LastRestart
	}
	if began := pod.CreationTimestamp; !began.IsZero() {
		v.Since = &began.Time
	} else if began := pod.Status.StartTime; began != nil {
		v.Since = &began.Time
	}
	return v
}

// toneOf returns how the status of a pod is to be shown.
func toneOf(pod *v1.Pod, s terminal.Summary) tone {
	switch {
	case pod.DeletionTimestamp != nil:
		return waits
	case pod.Status.Phase == v1.PodSucceeded:
		return ended
	case pod.Status.Phase == v1.PodFailed:
		return bad
	case s.Status == "Running" && s.Ready == s.Total:
		return good
	}
	for c := range podspec.Statuses(&pod.Status) {
		if toneOfContainer(c) == bad {
			return bad
		}
	}
	return waits
}

// toneOfContainer returns how the state of a container is to be shown.
func toneOfContainer(c *v1.ContainerStatus) tone {
	switch w, t := c.State.Waiting, c.State.Terminated; {
	case w != nil && (w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing"):
		return waits
	case w != nil || t != nil && t.ExitCode != 0:
		return bad
	case t != nil:
		return ended
	case c.Ready:
		return good
	default:
		return waits
	}
}

// containerView is a container of a pod.
type containerView struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind,omitempty"` // "init", "sidecar", "ephemeral", or "" for a main container
	Image    string     `json:"image"`
	State    string     `json:"state"`
	Tone     tone       `json:"tone"`
	Message  string     `json:"message,omitempty"`
	Last     string     `json:"last,omitempty"` // how the instance before ended
	Restarts int32      `json:"restarts"`
	Since    *time.Time `json:"since,omitempty"`
	Groups   []group    `json:"groups,omitempty"`
	Limits   limits     `json:"limits"`
	// Restart and Exec mean that the page offers them.
	Restart bool `json:"restart,omitempty"`
	Exec    bool `json:"exec,omitempty"`
}

// limits are those of a container; 0 is none.
type limits struct {
	Cores float64 `json:"cores,omitempty"`
	Bytes float64 `json:"bytes,omitempty"`
}

// fact is a name with its value.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Answer is the last answer of a probe, with its tone and the time since which it is so.
	Answer string     `json:"answer,omitempty"`
	Tone   tone       `json:"tone,omitempty"`
	At     *time.Time `json:"at,omitempty"`
}

// details are what the page of a pod has.
type details struct {
	podView
	Facts      []fact          `json:"facts"`
	Containers []containerView `json:"containers"`
	Volumes    []fact          `json:"volumes"`
	Events     []eventView     `json:"events"`
	// Grace is the grace period in seconds.
	Grace int64 `json:"grace,omitempty"`
}

// offer sets which containers can be restarted, and in which a command can be executed: those that run.
func (h *handler) offer(d *details, pod *v1.Pod) {
	d.Grace = podspec.GracePeriod(pod)
	for i := range d.Containers {
		c := &d.Containers[i]
		runs := runs(pod, c.Name)
		_, _, err := client.RestartOf(pod, c.Name)
		c.Restart = h.restarts && runs && err == nil
		c.Exec = h.execs && runs
	}
}

// detailsOf returns the details of a pod. goneAt is nil if it is on the node. past is its history.
func detailsOf(pod *v1.Pod, goneAt *time.Time, events []runtime.Event, past []history.Entry, now time.Time) details {
	d := details{podView: viewOf(pod, now), Containers: []containerView{}, Volumes: volumesOf(pod),
		Events: eventsOf(events)}
	d.Why = terminal.Why(pod, events, past, now)
	if goneAt != nil {
		d.Gone, d.Tone = goneAt, ended
		d.Why = "Not running: it is gone from the node since " + goneAt.Format(time.RFC3339)
	}
	add := func(name, value string) {
		if value != "" {
			d.Facts = append(d.Facts, fact{Name: name, Value: value})
		}
	}
	add("IP", pod.Status.PodIP)
	add("Class", string(pod.Status.QOSClass))
	add("Source", pod.Annotations[podspec.AnnotationConfigSource])
	add("Node", pod.Spec.NodeName)
	add("UID", string(pod.UID))
	state := map[string]*v1.ContainerStatus{}
	for c := range podspec.Statuses(&pod.Status) {
		state[c.Name] = c
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		v := containerView{Name: c.Name, Image: c.Image, State: "Waiting", Tone: waits, Groups: groupsOf(c, past),
			Limits: limits{c.Resources.Limits.Cpu().AsApproximateFloat64(),
				c.Resources.Limits.Memory().AsApproximateFloat64()}}
		switch {
		case kind == podspec.InitContainer && podspec.IsSidecar(c):
			v.Kind = "sidecar"
		case kind == podspec.InitContainer:
			v.Kind = "init"
		case kind == podspec.EphemeralContainer:
			v.Kind = "ephemeral"
		}
		if s := state[c.Name]; s != nil {
			v.describe(s)
		}
		d.Containers = append(d.Containers, v)
	}
	return d
}

// describe sets what the status of the container says.
func (v *containerView) describe(c *v1.ContainerStatus) {
	v.Tone, v.Restarts = toneOfContainer(c), c.RestartCount
	switch w, r, t := c.State.Waiting, c.State.Running, c.State.Terminated; {
	case w != nil:
		v.State, v.Message = cmp.Or(w.Reason, "Waiting"), w.Message
	case r != nil:
		v.State = "Running"
		if !c.Ready {
			v.State = "Running, not ready"
		}
		v.Since = timeOf(r.StartedAt)
	case t != nil:
		v.State, v.Message, v.Since = endOf(t), t.Message, timeOf(t.FinishedAt)
	}
	if t := c.LastTerminationState.Terminated; t != nil {
		v.Last = endOf(t)
	}
}

func endOf(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" {
		text = t.Reason + ", " + text
	}
	return text
}

func timeOf(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t.Time
}

// entryView is an entry of a history.
type entryView struct {
	// Key is the same for an entry that replaces another.
	Key       string    `json:"key"`
	Seq       uint64    `json:"seq"`
	Kind      string    `json:"kind"`
	Stage     string    `json:"stage"`
	Container string    `json:"container,omitempty"`
	Count     int       `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Tone      tone      `json:"tone"`
	Text      string    `json:"text"`
}

// entryOf returns an entry as the page shows it.
func entryOf(e history.Entry) entryView {
	v := entryView{
		Seq: e.Seq, Kind: string(e.Kind), Stage: strings.ToLower(string(e.Stage)), Container: e.Container,
		Count: e.Count,
		First: e.First, Last: e.Last, Tone: normal, Text: terminal.OneLine(history.Sentence(e.Record)),
	}
	v.Key = fmt.Sprintf("%s %s %s %s %d", e.Stage, e.Kind, e.Container, e.Reason, e.First.UnixMicro())
	switch {
	case terminal.IsProblem(&e.Record):
		v.Tone = bad
	case e.Kind == runtime.KindBackOff, e.Kind == runtime.KindWait:
		v.Tone = waits
	case e.Kind == runtime.KindContainerRunning, e.Kind == runtime.KindSandboxReady:
		v.Tone = good
	case e.Kind == runtime.KindContainerExited:
		v.Tone = ended
	}
	return v
}

// usageView is what the pods use at a time.
type usageView struct {
	Pods map[types.UID]usagePoint `json:"pods"`
	// Containers are those of one pod, by name.
	Containers map[string]usagePoint `json:"containers,omitempty"`
}

// usagePoint is one reading; a value that is not known is missing.
type usagePoint struct {
	At time.Time `json:"at"`
	// Cores is an average of some seconds.
	Cores *float64 `json:"cores,omitempty"`
	// Bytes is the working set.
	Bytes *uint64 `json:"bytes,omitempty"`
}

// usageOf returns what all pods use, and the containers of the pod of the UID.
func usageOf(s *statsv1alpha1.Summary, uid string) usageView {
	u := usageView{Pods: map[types.UID]usagePoint{}}
	for i := range s.Pods {
		pod := &s.Pods[i]
		if p := pointOf(pod.CPU, pod.Memory); !p.At.IsZero() {
			u.Pods[types.UID(pod.PodRef.UID)] = p
		}
		if pod.PodRef.UID != uid {
			continue
		}
		u.Containers = map[string]usagePoint{}
		for j := range pod.Containers {
			u.Containers[pod.Containers[j].Name] = pointOf(pod.Containers[j].CPU, pod.Containers[j].Memory)
		}
	}
	return u
}

func pointOf(cpu *statsv1alpha1.CPUStats, memory *statsv1alpha1.MemoryStats) (p usagePoint) {
	if cpu != nil && cpu.UsageNanoCores != nil {
		p.At, p.Cores = cpu.Time.Time, new(float64(*cpu.UsageNanoCores)/1e9)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		p.At, p.Bytes = memory.Time.Time, memory.WorkingSetBytes
	}
	return p
}
