package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// tablePeriod and linesPeriod are how often the pods are read although nothing has
	// changed: in a table ages change, and a refused pod disappears without a last status.
	tablePeriod, linesPeriod = time.Second, 5 * time.Minute
	// readyPeriod is how often ready is called until it returns true.
	readyPeriod = time.Second
	// tableDelay and linesDelay are the times from a change until it is shown, so that a burst
	// of changes is shown once.
	tableDelay, linesDelay = 200 * time.Millisecond, time.Second
)

// The modes of a [Display].
const (
	Auto  = "auto" // Table on a terminal, else Lines
	Table = "table"
	Lines = "lines" // a line for each change
	None  = "none"
)

// Modes returns all modes of a [Display].
func Modes() []string { return []string{Auto, Table, Lines, None} }

// Display shows the pods of an agent while it runs. Make one with [New].
type Display struct {
	// logs receives the agent's log, for people on a terminal if short is true.
	logs         *logWriter
	short, color bool
	level        slog.LevelVar
	// asJSON and modules are those of SetFormat.
	asJSON  bool
	modules []Module
	// draw shows the pods; nil shows nothing. If names is not nil, pods are those of these names,
	// and the others have not changed.
	draw func(names Names, pods []*v1.Pod)
	// whole means that draw needs all pods.
	whole bool
	// notes returns the lines below the table.
	notes func() []string
	// period is how often the pods are read although nothing has changed, delay the time
	// from a change until they are read.
	period, delay time.Duration
	// changed holds one token while there is a change to show; more would mean the same.
	changed chan struct{}

	mu sync.Mutex
	// names are the pods that have changed since they were read.
	names Names
}

// Names are names of pods.
type Names map[types.NamespacedName]bool

// New returns a display in one of the modes, which shows the pods on out. If out and
// errOut are the same terminal, the log is written above the table of the pods. getenv returns variables of the
// environment.
func New(mode string, out, errOut io.Writer, getenv func(string) string) *Display {
	d := &Display{logs: &logWriter{out: errOut}, period: linesPeriod, delay: linesDelay,
		changed: make(chan struct{}, 1), names: Names{}, notes: func() []string { return nil }}
	_, _, d.short = sizeOf(errOut)
	d.color = d.short && WantsColor(getenv)
	if mode == Auto {
		mode = Lines
		if _, _, isTerminal := sizeOf(out); isTerminal && getenv("TERM") != "dumb" {
			mode = Table
		}
	}
	switch mode {
	case Table:
		s := &screen{out: out, size: func() (int, int) {
			if width, height, ok := sizeOf(out); ok && width > 0 && height > 0 {
				return width, height
			}
			return 80, 24
		}}
		if sameFile(out, errOut) {
			d.logs.out = s
		}
		d.period, d.delay = tablePeriod, tableDelay
		d.whole = true
		d.draw = func(_ Names, pods []*v1.Pod) { s.show(PodTable(pods, time.Now()), d.notes()) }
	case Lines:
		d.draw = lines(out)
	}
	return d
}

// WantsColor reports whether the environment allows colors (https://no-color.org).
func WantsColor(getenv func(string) string) bool {
	return getenv("TERM") != "dumb" && getenv("NO_COLOR") == ""
}

// SetFormat makes JSON the format of the log, and sets how much is logged from some source files. It is for the next
// Handler.
func (d *Display) SetFormat(asJSON bool, more []Module) {
	d.asJSON, d.modules = asJSON, more
	d.short = d.short && !asJSON
}

// SetNotes sets what returns the lines below the table. It is called about once a second.
func (d *Display) SetNotes(notes func() []string) { d.notes = notes }

// Handler returns the handler of the agent's log: short lines on a terminal, otherwise
// the text format of package slog, or JSON. Records above the verbosity are dropped.
func (d *Display) Handler() slog.Handler {
	var handler slog.Handler = slog.NewTextHandler(d.logs, &slog.HandlerOptions{Level: &d.level})
	switch {
	case d.asJSON:
		handler = newJSONHandler(d.logs, &d.level)
	case d.short:
		handler = newHandler(d.logs, &d.level, d.color)
	}
	if len(d.modules) > 0 {
		handler = newModular(handler, &d.level, d.modules)
	}
	return handler
}

// SetVerbosity sets how much is logged: the value of the flag -v. The default is 0.
func (d *Display) SetVerbosity(v int) { d.level.Set(slog.Level(-v)) }

// Verbosity returns how much is logged.
func (d *Display) Verbosity() int { return -int(d.level.Level()) }

// LogHealthy returns an error if a line of the log could not be written for 2 minutes, as kubelet's
// check.
func (d *Display) LogHealthy() error {
	if since := d.logs.since.Load(); since != nil && time.Since(*since) > maxLogWrite {
		return errors.New("logging blocked")
	}
	return nil
}

// maxLogWrite is the time that a line of the log may take (k8s.io/apiserver: LogHealthz).
const maxLogWrite = 2 * time.Minute

// logWriter is a writer that records when its present write began. Writes are not concurrent.
type logWriter struct {
	out io.Writer
	// since is when the current write began, nil while there is none.
	since atomic.Pointer[time.Time]
}

func (w *logWriter) Write(data []byte) (int, error) {
	now := time.Now()
	w.since.Store(&now)
	defer w.since.Store(nil)
	return w.out.Write(data)
}

// Interactive reports whether the log is shown on a terminal.
func (d *Display) Interactive() bool { return d.short }

// lines returns a function that writes what has changed since its last call.
func lines(out io.Writer) func(Names, []*v1.Pod) {
	all := map[string]outline{}
	return func(names Names, pods []*v1.Pod) {
		before, now := all, outlinesOf(pods)
		if names != nil {
			before = outlinesNamed(all, names)
		}
		if changed := changes(before, now); len(changed) > 0 {
			fmt.Fprintln(out, strings.Join(changed, "\n"))
		}
		for name := range before {
			delete(all, name)
		}
		maps.Copy(all, now)
	}
}

func sameFile(a, b io.Writer) bool {
	var infos [2]os.FileInfo
	for i, w := range []io.Writer{a, b} {
		file, ok := w.(*os.File)
		if !ok {
			return false
		}
		info, err := file.Stat()
		if err != nil {
			return false
		}
		infos[i] = info
	}
	return os.SameFile(infos[0], infos[1])
}

// sizeOf returns the size of the terminal that w is.
func sizeOf(w io.Writer) (width, height int, ok bool) {
	file, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	return size(file)
}

// Changed reports that a pod has changed. It does not block.
func (d *Display) Changed(pod runtime.PodRef) {
	d.mu.Lock()
	d.names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// takeNames returns the names of the pods that have changed since the last call.
func (d *Display) takeNames() Names {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.names
	d.names = Names{}
	return names
}

// Run shows the pods until ctx ends. It calls pods with nil for all pods, or with the names of
// those that have changed: what a change costs does not depend on the number of pods. Nothing is
// shown before ready has returned true, which means that pods returns all of them.
func (d *Display) Run(ctx context.Context, pods func(Names) []*v1.Pod, ready func() bool) {
	if d.draw == nil {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(d.period)
	defer tick.Stop()
	for shown := false; ; {
		all := d.whole || !shown
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all = true
		case <-d.changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(d.delay):
			}
			select {
			case <-d.changed: // of the same burst
			default:
			}
		}
		if !ready() {
			tick.Reset(min(d.period, readyPeriod))
			continue
		}
		names := d.takeNames()
		if all {
			names = nil
			tick.Reset(d.period)
		} else if len(names) == 0 {
			continue // they were read when the token was not there yet
		}
		shown = true
		d.draw(names, pods(names))
	}
}
