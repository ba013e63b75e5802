package terminal

import (
	"context"
	"log/slog"
	"path"
	goruntime "runtime"
	"strings"
	"sync"
)

// Module has how much is logged from some source files, beside the verbosity for all.
type Module struct {
	// Pattern matches the name of a file without ".go", as in kubelet, or the name of its package; see [path.Match].
	Pattern   string
	Verbosity int
}

// modular passes on records of the level, and those of the modules below it.
type modular struct {
	slog.Handler
	*modules
}

// modules decides which records are passed on.
type modules struct {
	level slog.Leveler
	list  []Module
	most  slog.Level // of all modules
	known sync.Map   // the levels of callers, by program counter
}

func newModular(next slog.Handler, level slog.Leveler, list []Module) slog.Handler {
	m := &modules{level: level, list: list}
	for _, module := range list {
		m.most = min(m.most, slog.Level(-module.Verbosity))
	}
	return modular{next, m}
}

// Enabled implements [slog.Handler].
func (m modular) Enabled(_ context.Context, level slog.Level) bool {
	return level >= min(m.most, m.level.Level())
}

// Handle implements [slog.Handler].
func (m modular) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < m.level.Level() && r.Level < m.ofCaller(r.PC) {
		return nil
	}
	return m.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (m modular) WithAttrs(attrs []slog.Attr) slog.Handler {
	return modular{m.Handler.WithAttrs(attrs), m.modules}
}

// WithGroup implements [slog.Handler].
func (m modular) WithGroup(name string) slog.Handler {
	return modular{m.Handler.WithGroup(name), m.modules}
}

// ofCaller returns the lowest level that the caller logs.
func (m *modules) ofCaller(pc uintptr) slog.Level {
	if known, ok := m.known.Load(pc); ok {
		return known.(slog.Level)
	}
	frame, _ := goruntime.CallersFrames([]uintptr{pc}).Next()
	level := m.ofFile(frame.File)
	m.known.Store(pc, level)
	return level
}

// ofFile returns the lowest level of a source file: that of the first pattern that matches it.
func (m *modules) ofFile(file string) slog.Level {
	name, dir := strings.TrimSuffix(path.Base(file), ".go"), path.Base(path.Dir(file))
	for _, module := range m.list {
		for _, of := range [...]string{name, dir} {
			if ok, err := path.Match(module.Pattern, of); ok && err == nil {
				return slog.Level(-module.Verbosity)
			}
		}
	}
	return slog.LevelInfo
}
