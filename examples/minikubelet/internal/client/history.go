package client

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The columns of a history have fixed widths, because lines are also printed one by one.
const historyFormat = "%-20s  %-18s  %-18s  %s\n"

// historyHeader returns the names of the columns.
func historyHeader() string { return fmt.Sprintf(historyFormat, "Time", "Age", "Stage", "What") }

// described is the number of entries that describe prints.
const described = 20

// historyLine returns an entry as a line.
func historyLine(e history.Entry, now time.Time) string {
	age := duration.HumanDuration(now.Sub(e.Last))
	if e.Count > 1 {
		age += fmt.Sprintf(" (x%d over %s)", e.Count, duration.HumanDuration(e.Last.Sub(e.First)))
	}
	return fmt.Sprintf(historyFormat, e.Last.Format(time.RFC3339), age, terminal.Escape(stageOf(e)),
		terminal.Escape(strings.Join(strings.Fields(history.Sentence(e.Record)), " ")))
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
	var b strings.Builder
	b.WriteString(title + "  " + historyHeader())
	for _, e := range past {
		b.WriteString("  " + historyLine(e, now))
	}
	return b.String()
}
