package oom

import (
	"context"
	"errors"
)

// Log is the log of the kernel. Its methods are called concurrently, except Close.
type Log interface {
	// Wait blocks until there is a record to read, or ctx ends.
	Wait(ctx context.Context) error
	// Next returns the next record in the buffer, and does not block. Its error is [ErrNoRecord] if there is none, and
	// [ErrLost] if the kernel has overwritten records, or one is larger than the buffer; the next call returns the one
	// after these.
	Next(buf []byte) (n int, err error)
	Close() error
}

// The errors of [Log.Next] after which the log can be read further.
var (
	ErrNoRecord = errors.New("oom: the log has no more records")
	ErrLost     = errors.New("oom: records of the log are lost")
)
