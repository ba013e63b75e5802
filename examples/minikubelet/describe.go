package main

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
)

// description is a text of names and values, indented by level.
type description struct {
	w   *tabwriter.Writer
	now time.Time
}

func (d *description) line(level int, name, format string, args ...any) {
	fmt.Fprintf(d.w, "%s%s:\t%s\n", strings.Repeat("  ", level), name, fmt.Sprintf(format, args...))
}

// optional is a line that is left out without a value.
func (d *description) optional(level int, name, value string) {
	if value != "" {
		d.line(level, name, "%s", strings.Join(strings.Fields(value), " "))
	}
}

// describe tells of a pod what helps to find out why it is as it is.
func describe(pod *v1.Pod, now time.Time) string {
	var b strings.Builder
	d := &description{tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0), now}
	st := &pod.Status
	d.line(0, "Name", "%s", pod.Name)
	d.line(0, "Namespace", "%s", pod.Namespace)
	d.line(0, "UID", "%s", pod.UID)
	d.line(0, "Node", "%s", pod.Spec.NodeName)
	if st.StartTime != nil {
		d.line(0, "Start Time", "%s", d.at(*st.StartTime))
	}
	d.pairs("Labels", pod.Labels)
	d.pairs("Annotations", pod.Annotations)
	d.line(0, "Status", "%s", summarize(pod).status)
	d.line(0, "Phase", "%s", st.Phase)
	d.optional(0, "Reason", st.Reason)
	d.optional(0, "Message", st.Message)
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
			d.line(1, string(c.Type), "%s", strings.TrimRight(fmt.Sprintf("%s %s", c.Status, c.Message), " "))
		}
	}
	if len(pod.Spec.Volumes) > 0 {
		fmt.Fprintln(d.w, "Volumes:")
		for i := range pod.Spec.Volumes {
			d.line(1, pod.Spec.Volumes[i].Name, "%s", volumeKind(&pod.Spec.Volumes[i]))
		}
	}
	_ = d.w.Flush()
	return b.String()
}

func (d *description) pairs(name string, pairs map[string]string) {
	for i, key := range slices.Sorted(maps.Keys(pairs)) {
		if i == 0 {
			d.line(0, name, "%s=%s", key, pairs[key])
			continue
		}
		fmt.Fprintf(d.w, "\t%s=%s\n", key, pairs[key])
	}
}

func (d *description) at(t metav1.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.Format(time.RFC3339), duration.HumanDuration(d.now.Sub(t.Time)))
}

func (d *description) containers(title string, specs []v1.Container, statuses []v1.ContainerStatus) {
	if len(specs) > 0 {
		fmt.Fprintf(d.w, "%s:\n", title)
	}
	for i := range specs {
		c := &specs[i]
		fmt.Fprintf(d.w, "  %s:\n", c.Name)
		d.line(2, "Image", "%s", c.Image)
		d.optional(2, "Command", quoted(c.Command))
		d.optional(2, "Args", quoted(c.Args))
		d.optional(2, "Requests", resources(c.Resources.Requests))
		d.optional(2, "Limits", resources(c.Resources.Limits))
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
		d.state("State", &s.State)
		if s.LastTerminationState.Terminated != nil {
			d.state("Last State", &s.LastTerminationState)
		}
		d.line(2, "Ready", "%t", s.Ready)
		d.line(2, "Restart Count", "%d", s.RestartCount)
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

func volumeKind(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath " + v.HostPath.Path
	default:
		return "of a type that is not supported yet"
	}
}
