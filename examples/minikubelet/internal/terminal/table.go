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
	for _, r := range slices.Concat([]row{columns}, rowsOf(pods, now)) {
		cells := []string{r.Namespace, r.Name, r.Ready, r.Status, r.Restarts, r.Age, r.IP}
		for i := range cells {
			cells[i] = Escape(cells[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
	return b.String()
}

// row is a pod in the table of pods. The columns are those of kubectl.
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
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
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
