package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// row is a pod in the table of pods. The columns are kubectl's.
type row struct {
	Namespace, Name, Ready, Status, Restarts, Age, IP string
}

// columns is the header.
var columns = row{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}

// rowsOf returns the rows of the pods, sorted by namespace and name.
func rowsOf(pods []*v1.Pod, now time.Time) []row {
	rows := make([]row, 0, len(pods))
	for _, pod := range pods {
		rows = append(rows, rowOf(pod, now))
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// rowOf returns the row of a pod, as kubectl prints it.
func rowOf(pod *v1.Pod, now time.Time) row {
	s := summarize(pod)
	r := row{
		Namespace: pod.Namespace, Name: pod.Name, Status: s.status, IP: pod.Status.PodIP,
		Ready: fmt.Sprintf("%d/%d", s.ready, s.total), Restarts: strconv.Itoa(s.restarts), Age: "<unknown>",
	}
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		r.Restarts += " (" + duration.HumanDuration(now.Sub(s.lastRestart)) + " ago)"
	}
	// Static pods were not created by anybody; the status has when they were taken in.
	if began := pod.CreationTimestamp; !began.IsZero() {
		r.Age = duration.HumanDuration(now.Sub(began.Time))
	} else if began := pod.Status.StartTime; began != nil {
		r.Age = duration.HumanDuration(now.Sub(began.Time))
	}
	if r.IP == "" {
		r.IP = "<none>"
	}
	return r
}

// table returns the rows with a header.
func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	for _, r := range slices.Concat([]row{columns}, rows) {
		fmt.Fprintln(w, strings.Join([]string{r.Namespace, r.Name, r.Ready, r.Status, r.Restarts, r.Age, r.IP}, "\t"))
	}
	_ = w.Flush()
	return b.String()
}

// summary is what a table tells of a pod's status.
type summary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  time.Time
	// message says more of a status that is no good one, as far as that is known.
	message string
}

// summarize finds out what kubectl has in STATUS, READY and RESTARTS.
func summarize(pod *v1.Pod) summary {
	s := summary{status: cmp.Or(pod.Status.Reason, string(pod.Status.Phase), "Pending"), total: len(pod.Spec.Containers), message: pod.Status.Message}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	initialized := s.init(pod, sidecars)
	if initialized || conditionTrue(pod, v1.PodInitialized) {
		s.main(pod, sidecars)
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	if pod.DeletionTimestamp != nil && !ended {
		s.status = "Terminating"
	}
	return s
}

// init takes the init containers in, and reports whether they are done.
func (s *summary) init(pod *v1.Pod, sidecars map[string]bool) bool {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.restarted(c)
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.status = "Init:" + endOf(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.status, s.message = "Init:"+w.Reason, w.Message
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return false
	}
	return true
}

// main takes the main containers in. Restarts of init containers do not count any
// more, but those of sidecars.
func (s *summary) main(pod *v1.Pod, sidecars map[string]bool) {
	s.restarts, s.lastRestart = 0, time.Time{}
	for i := range pod.Status.InitContainerStatuses {
		if c := &pod.Status.InitContainerStatuses[i]; sidecars[c.Name] {
			s.restarted(c)
		}
	}
	running, failed := false, ""
	// Of several that have something to say the first one wins.
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.restarted(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.status, s.message = w.Reason, w.Message
		case t != nil:
			s.status = endOf(t)
			if t.ExitCode != 0 {
				failed = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && conditionTrue(pod, v1.PodReady):
		s.status = "Running"
	case failed != "":
		s.status = failed
	case running:
		s.status = "NotReady"
	}
}

func (s *summary) restarted(c *v1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.lastRestart) {
		s.lastRestart = t.FinishedAt.Time
	}
}

// endOf says in a word how a container ended.
func endOf(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func conditionTrue(pod *v1.Pod, kind v1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
