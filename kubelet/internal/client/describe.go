package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// description writes names and values, indented by level.
type description struct {
	text *strings.Builder
	w    *tabwriter.Writer
	now  time.Time
	// width is that of the terminal, 0 if there is none.
	width int
	// held is what containers hold for themselves.
	held map[string][]string
}

func newDescription(now time.Time, width int) *description {
	d := &description{text: &strings.Builder{}, now: now, width: width, held: map[string][]string{}}
	d.w = tabwriter.NewWriter(d.text, 0, 8, 2, ' ', 0)
	return d
}

// page returns what was written.
func (d *description) page() string {
	_ = d.w.Flush()
	return d.text.String()
}

// headline writes the line that says why a pod is not running, and what follows is about it.
func (d *description) headline(text string) {
	// The lines after it are not to be aligned with it.
	fmt.Fprintf(d.text, "%s\n", wrapped(terminal.Escape(terminal.OneLine(text)), d.width))
}

func (d *description) line(level int, name, format string, args ...any) {
	fmt.Fprintf(d.w, "%s%s:\t%s\n", strings.Repeat("  ", level), terminal.Escape(name),
		terminal.Escape(fmt.Sprintf(format, args...)))
}

// optional writes a line unless the value is empty.
func (d *description) optional(level int, name, value string) {
	if value != "" {
		d.line(level, name, "%s", terminal.OneLine(value))
	}
}

// describeAbsent returns what is known of a pod that is not on the node.
func describeAbsent(k *known, now time.Time, width int) string {
	d := newDescription(now, width)
	pod := k.old
	latest := newestProblem(k.past)
	switch {
	case len(k.broken) > 0:
		d.headline("Not running: its manifest cannot be used: " + k.broken[0].Error)
	case latest != nil:
		d.headline("Not running, not on the node: " + history.Sentence(latest.Record))
	default:
		d.headline("Not running: it is not on the node")
	}
	d.line(0, "Name", "%s", pod.Name)
	d.line(0, "Namespace", "%s", pod.Namespace)
	d.line(0, "UID", "%s", pod.UID)
	d.line(0, "Status", "not on the node")
	d.manifests(k.broken)
	return d.page() + d.history(k.past)
}

// manifests writes the manifests that cannot be used.
func (d *description) manifests(broken []control.Problem) {
	for _, p := range broken {
		d.line(0, "Manifest", "%s", p.Path)
		d.optional(0, "Manifest Error", p.Error)
	}
}

// describe returns what helps to find out why a pod is in its state.
func describe(k *known, now time.Time, width int) string {
	d := newDescription(now, width)
	pod, gone := k.pod, k.gone
	for _, h := range k.held {
		if gone != nil || h.Namespace != pod.Namespace || h.Pod != pod.Name {
			continue
		}
		text := h.Resource + " " + h.Held
		if h.Nodes != "" {
			text += " (NUMA " + h.Nodes + ")"
		}
		d.held[h.Container] = append(d.held[h.Container], text)
	}
	st := &pod.Status
	if gone != nil {
		text := "Not running: it has been gone from the node for " + duration.HumanDuration(now.Sub(gone.At))
		if latest := newestProblem(k.past); latest != nil {
			text += "; the newest problem: " + history.Sentence(latest.Record)
		}
		d.headline(text)
	} else {
		d.headline(terminal.Why(pod, k.events, k.past, now))
	}
	d.line(0, "Name", "%s", pod.Name)
	d.line(0, "Namespace", "%s", pod.Namespace)
	d.line(0, "UID", "%s", pod.UID)
	d.optional(0, "Node", pod.Spec.NodeName)
	if st.StartTime != nil {
		d.line(0, "Start Time", "%s", d.at(*st.StartTime))
	}
	if gone != nil {
		d.line(0, "Gone Since", "%s", d.at(metav1.NewTime(gone.At)))
	} else if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
		d.line(0, "Grace Period", "%ds, ends %s", *pod.DeletionGracePeriodSeconds,
			pod.DeletionTimestamp.In(now.Location()).Format(time.RFC3339))
	}
	d.pairs("Labels", pod.Labels)
	d.pairs("Annotations", pod.Annotations)
	d.line(0, "Status", "%s", terminal.Summarize(pod).Status)
	d.optional(0, "Phase", string(st.Phase))
	d.optional(0, "Reason", st.Reason)
	d.optional(0, "Message", st.Message)
	d.manifests(k.broken)
	var ips []string
	for _, ip := range st.PodIPs {
		ips = append(ips, ip.IP)
	}
	d.optional(0, "IPs", strings.Join(ips, ", "))
	d.optional(0, "QoS Class", string(st.QOSClass))
	d.optional(0, "Restart Policy", string(pod.Spec.RestartPolicy))
	d.containers("Init Containers", pod.Spec.InitContainers, st.InitContainerStatuses)
	d.containers("Containers", pod.Spec.Containers, st.ContainerStatuses)
	if len(st.Conditions) > 0 {
		fmt.Fprintln(d.w, "Conditions:")
		for _, c := range st.Conditions {
			d.line(1, string(c.Type), "%s", strings.TrimRight(string(c.Status)+" "+terminal.OneLine(c.Message), " "))
		}
	}
	if len(pod.Spec.Volumes) > 0 {
		fmt.Fprintln(d.w, "Volumes:")
		for i := range pod.Spec.Volumes {
			d.line(1, pod.Spec.Volumes[i].Name, "%s", terminal.VolumeText(&pod.Spec.Volumes[i].VolumeSource))
		}
	}
	d.events(k.events)
	return d.page() + d.history(k.past)
}

// events writes a table of the events, the newest last, as the command events and kubectl.
func (d *description) events(events []runtime.Event) {
	if len(events) == 0 {
		d.line(0, "Events", "<none>")
		return
	}
	// The lines before are not to be aligned with the table.
	_ = d.w.Flush()
	p := &printer{out: d.text, columns: []column{{name: "  Type"}, {name: "Reason"}, {name: "Age"},
		{name: "Container", spare: true}, {name: "Message"}}, width: d.width}
	fmt.Fprintln(d.text, "Events:")
	for _, e := range events {
		_ = p.row("", "  "+terminal.Escape(e.Type), terminal.Escape(e.Reason), lastSeen(e, d.now),
			terminal.Escape(containerOf(e.FieldPath)), terminal.Escape(terminal.OneLine(e.Message)))
	}
	_ = p.flush()
}

// containerOf returns the name of the container in a path such as
// "spec.containers{web}", and "-" if there is none.
func containerOf(path string) string {
	_, name, found := strings.Cut(strings.TrimSuffix(path, "}"), "{")
	if !found {
		return "-"
	}
	return name
}

func (d *description) pairs(name string, pairs map[string]string) {
	for i, key := range slices.Sorted(maps.Keys(pairs)) {
		if i == 0 {
			d.line(0, name, "%s=%s", key, pairs[key])
			continue
		}
		fmt.Fprintf(d.w, "\t%s\n", terminal.Escape(key+"="+pairs[key]))
	}
}

func (d *description) at(t metav1.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.In(d.now.Location()).Format(time.RFC3339),
		duration.HumanDuration(d.now.Sub(t.Time)))
}

func (d *description) containers(title string, specs []v1.Container, statuses []v1.ContainerStatus) {
	if len(specs) > 0 {
		fmt.Fprintf(d.w, "%s:\n", title)
	}
	for i := range specs {
		c := &specs[i]
		fmt.Fprintf(d.w, "  %s:\n", terminal.Escape(c.Name))
		d.line(2, "Image", "%s", c.Image)
		d.optional(2, "Command", quoted(c.Command))
		d.optional(2, "Args", quoted(c.Args))
		d.optional(2, "Requests", resources(c.Resources.Requests))
		d.optional(2, "Limits", resources(c.Resources.Limits))
		d.optional(2, "Holds", strings.Join(d.held[c.Name], ", "))
		var mounts []string
		for _, m := range c.VolumeMounts {
			mounts = append(mounts, m.MountPath+" from "+m.Name)
		}
		d.optional(2, "Mounts", strings.Join(mounts, ", "))
		at := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
		if at < 0 {
			continue
		}
		s := &statuses[at]
		d.optional(2, "Container ID", s.ContainerID)
		d.devices(s.AllocatedResourcesStatus)
		d.state("State", &s.State)
		if s.LastTerminationState.Terminated != nil {
			d.state("Last State", &s.LastTerminationState)
		}
		d.line(2, "Ready", "%t", s.Ready)
		d.line(2, "Restart Count", "%d", s.RestartCount)
	}
}

// devices writes the devices of a container, and their health if it is not good.
func (d *description) devices(list []v1.ResourceStatus) {
	for i := range list {
		var ids []string
		for _, r := range list[i].Resources {
			id := string(r.ResourceID)
			if r.Health != v1.ResourceHealthStatusHealthy {
				id += " (" + string(r.Health) + ")"
			}
			ids = append(ids, id)
		}
		d.line(2, "Devices of "+string(list[i].Name), "%s", strings.Join(ids, ", "))
	}
}

func (d *description) state(name string, s *v1.ContainerState) {
	switch {
	case s.Running != nil:
		d.line(2, name, "Running")
		d.line(3, "Started", "%s", d.at(s.Running.StartedAt))
	case s.Terminated != nil:
		d.line(2, name, "Terminated")
		d.optional(3, "Reason", s.Terminated.Reason)
		d.optional(3, "Message", s.Terminated.Message)
		d.line(3, "Exit Code", "%d", s.Terminated.ExitCode)
		if !s.Terminated.FinishedAt.IsZero() {
			d.line(3, "Finished", "%s", d.at(s.Terminated.FinishedAt))
		}
	case s.Waiting != nil:
		d.line(2, name, "Waiting")
		d.optional(3, "Reason", s.Waiting.Reason)
		d.optional(3, "Message", s.Waiting.Message)
	}
}

func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", words)
}

func resources(list v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, ", ")
}
