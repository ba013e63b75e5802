package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// historyColumns returns the columns of a history.
func historyColumns() []column {
	return []column{{name: "TIME"}, {name: "STAGE", spare: true}, {name: "CONTAINER", wide: true},
		{name: "KIND", wide: true}, {name: "WHAT"}}
}

// historyList is a history as it is printed in JSON. testdata/screens keeps its fields.
type historyList struct {
	Kind  string         `json:"kind"` // HistoryList
	Items []historyValue `json:"items"`
}

// historyValue is an entry as it is printed in JSON, see [history.Entry].
type historyValue struct {
	Pod struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		UID       types.UID `json:"uid"`
	} `json:"pod"`
	First     time.Time            `json:"first"`
	Last      time.Time            `json:"last"`
	Count     int                  `json:"count"`
	Stage     runtime.RecordStage  `json:"stage"`
	Source    runtime.RecordSource `json:"source,omitempty"`
	Kind      runtime.RecordKind   `json:"kind"`
	Container string               `json:"container,omitempty"`
	Attempt   uint32               `json:"attempt,omitempty"`
	// ExitCode is that of a container that has exited.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	Error    string `json:"error,omitempty"`
	// Duration is a text such as 1.5s.
	Duration string    `json:"duration,omitempty"`
	ExitedAt time.Time `json:"exitedAt,omitzero"`
	Sentence string    `json:"sentence"`
}

func historyValueOf(e history.Entry) historyValue {
	v := historyValue{First: e.First, Last: e.Last, Count: e.Count, Stage: e.Stage, Source: e.Source, Kind: e.Kind,
		Container: e.Container, Attempt: e.Attempt, Reason: e.Reason, Message: e.Message, Error: e.Error,
		ExitedAt: e.At, Sentence: history.Sentence(e.Record)}
	v.Pod.Namespace, v.Pod.Name, v.Pod.UID = e.Pod.Namespace, e.Pod.Name, e.Pod.UID
	if e.Kind == runtime.KindContainerExited {
		v.ExitCode = &e.ExitCode
	}
	if e.Duration != 0 {
		v.Duration = e.Duration.String()
	}
	return v
}

// described is the number of entries that describe prints.
const described = 20

// historyCells returns the row of an entry.
func historyCells(e history.Entry, now time.Time) []string {
	what := terminal.OneLine(history.Sentence(e.Record))
	if e.Count > 1 {
		what += fmt.Sprintf(" (%d times in %s)", e.Count, duration.HumanDuration(e.Last.Sub(e.First)))
	}
	return []string{
		localTime(e.Last, now), terminal.Escape(stageOf(e)), terminal.Escape(cmp.Or(e.Container, "-")),
		terminal.Escape(string(e.Kind)),
		terminal.Escape(what),
	}
}

// localTime returns a time in the zone of now, with the date if it is not that of now.
func localTime(t, now time.Time) string {
	t = t.In(now.Location())
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case t.Year() == now.Year():
		return t.Format("Jan 02 15:04:05")
	default:
		return t.Format("2006-01-02 15:04")
	}
}

// newestProblem returns the latest entry that is a problem, nil if there is none. The end of a pod that was told to
// stop is none.
func newestProblem(past []history.Entry) (latest *history.Entry) {
	stops := false
	for i := range past {
		e := &past[i]
		switch e.Kind {
		case runtime.KindStopPod:
			stops = true
		case runtime.KindCreateSandbox:
			stops = false
		case runtime.KindSandboxDied, runtime.KindContainerExited:
			if stops {
				continue
			}
		}
		if terminal.IsProblem(&e.Record) {
			latest = e
		}
	}
	return latest
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

// history returns the latest entries, the newest first, indented, with a title.
func (d *description) history(past []history.Entry) string {
	if len(past) == 0 {
		return ""
	}
	title := "History:\n"
	if earlier := len(past) - described; earlier > 0 {
		title = fmt.Sprintf("History: (%d earlier lines with the command history)\n", earlier)
		past = past[earlier:]
	}
	var lines strings.Builder
	p := &printer{out: &lines, columns: historyColumns()}
	if d.width > 0 {
		p.width = d.width - 2
	}
	for _, e := range slices.Backward(past) {
		_ = p.row("", historyCells(e, d.now)...)
	}
	_ = p.flush()
	return title + "  " + strings.ReplaceAll(strings.TrimSuffix(lines.String(), "\n"), "\n", "\n  ") + "\n"
}
