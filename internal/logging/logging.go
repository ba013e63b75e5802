// Package logging has the default of the loggers in options, and the level of what a user may not do.
package logging

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
)

// OrDefault returns log, or a logger that writes to the default of package slog if log is the zero value. What goes
// wrong is then visible in a program that has no logger yet. logr.Discard returns the zero value too; a logger that
// discards is logr.FromSlogHandler(slog.DiscardHandler).
func OrDefault(log logr.Logger) logr.Logger {
	if log.GetSink() != nil {
		return log
	}
	return logr.FromSlogHandler(slog.Default().Handler())
}

// Denied returns the logger for err: that of level 1 if err is a refusal that a user other than root expects.
func Denied(log logr.Logger, err error) logr.Logger {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return log.V(1)
	}
	return log
}
