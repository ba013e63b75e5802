package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Escape sequences of ECMA-48 (SGR).
const (
	reset  = "\x1b[0m"
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// handler writes log records for people on a terminal, one line each: level, time of day,
// message, and keys with values. It is safe for concurrent use.
type handler struct {
	mu    *sync.Mutex // guards out
	out   io.Writer   // gets one Write for each record
	level slog.Leveler
	color bool
	// prefix of keys: the open groups, each with a dot.
	prefix string
	// attrs are the attributes of WithAttrs as they are written.
	attrs string
}

func newHandler(out io.Writer, level slog.Leveler, color bool) *handler {
	return &handler{mu: &sync.Mutex{}, out: out, level: level, color: color}
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		h.attr(&b, h.prefix, a)
	}
	with := *h
	with.attrs += b.String()
	return &with
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.prefix += name + "."
	return &with
}

// Handle implements [slog.Handler].
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	name, color := levelName(r.Level)
	b.WriteString(h.paint(color, fmt.Sprintf("%-5s", name)))
	if !r.Time.IsZero() {
		b.WriteString(" " + h.paint(faint, r.Time.Format(time.TimeOnly)))
	}
	b.WriteString(" " + printable(r.Message) + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		h.attr(&b, h.prefix, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.out, b.String())
	return err
}

// levelName returns the name of a level and its color. Levels below Info are the
// verbosities of logr: V2 is level -2.
func levelName(level slog.Level) (name, color string) {
	switch {
	case level >= slog.LevelError:
		return "ERROR", red
	case level >= slog.LevelWarn:
		return "WARN", yellow
	case level >= slog.LevelInfo:
		return "INFO", green
	default:
		return "V" + strconv.Itoa(int(-level)), faint
	}
}

func (h *handler) paint(color, text string) string {
	if !h.color {
		return text
	}
	return color + text + reset
}

// attr writes " key=value", for a group once for each attribute of it.
func (h *handler) attr(b *strings.Builder, prefix string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, a := range value.Group() {
			h.attr(b, prefix, a)
		}
		return
	}
	if a.Key == "" {
		return
	}
	b.WriteString(" " + h.paint(faint, prefix+a.Key+"="))
	text := value.String()
	if pod, ok := value.Any().(runtime.PodRef); ok {
		text = pod.Namespace + "/" + pod.Name // the UID is too long for a short line
	}
	b.WriteString(quoted(text))
}

// quoted returns the text in quotes if it would be ambiguous without.
func quoted(text string) string {
	switch {
	case text != "" && strings.IndexFunc(text,
		func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" \"=`", r) }) < 0:
		return text
	case strings.Contains(text, `"`) && strconv.CanBackquote(text):
		return "`" + text + "`"
	default:
		return strconv.Quote(text)
	}
}

// printable returns the text without characters that act on a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
