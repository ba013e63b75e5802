// Package logging has the default of the loggers in options.
package logging

import (
	"log/slog"

	"github.com/go-logr/logr"
)

// OrDefault returns log, or a logger that writes to the default of package slog if log is the zero value. What goes wrong is
// then visible in a program that has no logger yet. logr.Discard returns the zero value too; a logger that discards is
// logr.FromSlogHandler(slog.DiscardHandler).
func OrDefault(log logr.Logger) logr.Logger {
	if log.GetSink() != nil {
		return log
	}
	return logr.FromSlogHandler(slog.Default().Handler())
}
