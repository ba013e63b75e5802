package terminal

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

// PodTable returns the pods as a table with a header, sorted by namespace and name.
func PodTable(pods []*v1.Pod, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(PodColumns(), "\t"))
	for _, pod := range SortPods(pods) {
		fmt.Fprintln(w, strings.Join(PodCells(pod, now), "\t"))
	}
	_ = w.Flush()
	return b.String()
}

// SortPods returns the pods sorted by namespace and name.
func SortPods(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// PodColumns returns the names of the columns of a table of pods. They are kubectl's.
func PodColumns() []string {
	return []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}
}

// PodCells returns the row of a pod.
func PodCells(pod *v1.Pod, now time.Time) []string {
	r := rowOf(pod, now)
	cells := []string{r.Namespace, r.Name, r.Ready, r.Status, r.Restarts, r.Age, r.IP}
	for i := range cells {
		cells[i] = Escape(cells[i])
	}
	return cells
}

// row is a pod in the table of pods.
type row struct {
	Namespace, Name, Ready, Status, Restarts, Age, IP string
}

// rowOf returns the row of a pod as kubectl prints it.
func rowOf(pod *v1.Pod, now time.Time) row {
	s := Summarize(pod)
	r := row{
		Namespace: pod.Namespace, Name: pod.Name, Status: s.Status, IP: pod.Status.PodIP,
		Ready: fmt.Sprintf("%d/%d", s.Ready, s.Total), Restarts: strconv.Itoa(s.Restarts), Age: "<unknown>",
	}
	if s.Restarts > 0 && !s.LastRestart.IsZero() {
		r.Restarts += " (" + duration.HumanDuration(now.Sub(s.LastRestart)) + " ago)"
	}
	// Static pods have no creation time; their status has the time of their admission.
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
