package client

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// historyColumns returns the columns of a history. Their widths are fixed, because lines are also
// printed one by one.
func historyColumns() []column {
	return []column{
		{name: "Time", width: 20}, {name: "Age", width: 18}, {name: "Stage", width: 18},
		{name: "Container", width: 16, wide: true}, {name: "Kind", width: 20, wide: true}, {name: "What"},
	}
}

// historyValue is an entry as it is printed in JSON.
type historyValue struct {
	history.Entry
	Sentence string
}

// described is the number of entries that describe prints.
const described = 20

// historyCells returns the row of an entry.
func historyCells(e history.Entry, now time.Time) []string {
	age := duration.HumanDuration(now.Sub(e.Last))
	if e.Count > 1 {
		age += fmt.Sprintf(" (x%d over %s)", e.Count, duration.HumanDuration(e.Last.Sub(e.First)))
	}
	return []string{
		e.Last.Format(time.RFC3339), age, terminal.Escape(stageOf(e)), terminal.Escape(cmp.Or(e.Container, "-")), terminal.Escape(string(e.Kind)),
		terminal.Escape(strings.Join(strings.Fields(history.Sentence(e.Record)), " ")),
	}
}

// stageOf returns the stage of an entry in words.
func stageOf(e history.Entry) string {
	s := strings.ToLower(string(e.Stage))
	if e.Stage != runtime.StageSeen {
		return s
	}
	switch e.Source {
	case "":
		return s
	case runtime.SourceEvent:
		return s + " by event"
	case runtime.SourceRelist:
		return s + " by list"
	default:
		return s + " by " + strings.ToLower(string(e.Source))
	}
}

// describeHistory returns the latest entries, indented, with a title.
func describeHistory(past []history.Entry, now time.Time) string {
	if len(past) == 0 {
		return ""
	}
	title := "History:\n"
	if earlier := len(past) - described; earlier > 0 {
		title = fmt.Sprintf("History: (%d earlier lines with minikubelet history)\n", earlier)
		past = past[earlier:]
	}
	var lines strings.Builder
	p := &printer{out: &lines, columns: historyColumns()}
	for _, e := range past {
		_ = p.row("", historyCells(e, now)...)
	}
	return title + "  " + strings.ReplaceAll(strings.TrimSuffix(lines.String(), "\n"), "\n", "\n  ") + "\n"
}
