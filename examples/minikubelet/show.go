package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// tablePeriod and linesPeriod are how often the pods are looked at without a
	// reason: in a table ages change, and a pod that was refused goes without a last
	// status.
	tablePeriod, linesPeriod = time.Second, 30 * time.Second
	// readyPeriod is how often it is asked whether what there is is all.
	readyPeriod = time.Second
	// showDelay is how long further changes are waited for, so that a burst is shown once.
	showDelay = 200 * time.Millisecond
)

// The values of --show.
const (
	showAuto  = "auto"
	showTable = "table"
	showLines = "lines"
	showNone  = "none"
)

// display shows the pods of an agent while it runs. It is a status sink, by which it
// learns that something has changed.
type display struct {
	// logs is where the agent's log goes.
	logs io.Writer
	// draw shows the pods; nil shows nothing.
	draw func(pods []*v1.Pod)
	// period is how often to look without a reason.
	period time.Duration
	// changed holds one token while there is something new to look at: more would say
	// no more.
	changed chan struct{}
}

// newDisplay chooses how pods are shown on out: as a table that follows them if it
// is a terminal, else by a line for each change. If errOut is the same terminal,
// the log is written above the table.
func newDisplay(show string, out, errOut *os.File) *display {
	d := &display{logs: errOut, period: linesPeriod, changed: make(chan struct{}, 1)}
	if show == showAuto {
		show = showLines
		if _, _, isTerminal := terminalSize(out); isTerminal && os.Getenv("TERM") != "dumb" {
			show = showTable
		}
	}
	switch show {
	case showTable:
		s := &screen{out: out, size: func() (int, int) {
			if width, height, ok := terminalSize(out); ok && width > 0 && height > 0 {
				return width, height
			}
			return 80, 24
		}}
		if sameFile(out, errOut) {
			d.logs = s
		}
		d.period = tablePeriod
		d.draw = func(pods []*v1.Pod) { s.show(table(rowsOf(pods, time.Now()))) }
	case showLines:
		d.draw = lines(out)
	}
	return d
}

// lines returns a function that writes what has changed since its last call.
func lines(out io.Writer) func([]*v1.Pod) {
	before := map[string]outline{}
	return func(pods []*v1.Pod) {
		now := outlinesOf(pods)
		if news := changes(before, now); len(news) > 0 {
			fmt.Fprintln(out, strings.Join(news, "\n"))
		}
		before = now
	}
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	if err != nil {
		return false
	}
	other, err := b.Stat()
	return err == nil && os.SameFile(one, other)
}

// Deliver implements the agent's status sink.
func (d *display) Deliver(context.Context, *v1.Pod, v1.PodStatus) error {
	select {
	case d.changed <- struct{}{}:
	default:
	}
	return nil
}

// run shows the pods until ctx ends. ready says that what there is is all: before,
// pods are not shown.
func (d *display) run(ctx context.Context, pods func() []*v1.Pod, ready func() bool) {
	if d.draw == nil {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(d.period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(showDelay):
			}
		}
		if !ready() {
			tick.Reset(min(d.period, readyPeriod))
			continue
		}
		tick.Reset(d.period)
		d.draw(pods())
	}
}
