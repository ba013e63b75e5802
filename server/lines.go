package server

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

var (
	// errReaderGone means that the client has disconnected.
	errReaderGone = errors.New("the client disconnected")
	// errLimit means that the client has as many bytes as it has requested.
	errLimit = errors.New("the limit of bytes is reached")
)

const (
	// chunk is the size of a write to the client while there is more.
	chunk = 64 << 10
	// idleBuffer is the size of the buffer that may stay while nothing is written.
	idleBuffer = 8 << 10
)

// timeLayout is kubelet's format of timestamps, of fixed width in UTC.
const timeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// lineWriter writes the lines of a log to a client.
type lineWriter struct {
	w          io.Writer
	flush      func()
	timestamps bool
	since      time.Time
	// stream is the only stream that is written, unless it is empty.
	stream string
	// left is the number of bytes until the limit.
	left int64
	// began means that the answer has begun, so that it cannot be an error any more.
	began bool
	// partial means that the next line continues the last one.
	partial bool
	// buf is what is not written yet.
	buf []byte
}

func newLineWriter(w io.Writer, flush func(), o logOptions) *lineWriter {
	out := &lineWriter{w: w, flush: flush, timestamps: o.timestamps, since: o.since, stream: o.stream,
		left: math.MaxInt64}
	if o.limit >= 0 {
		out.left = o.limit
	}
	return out
}

// line writes a line of the log, if the client has requested it. A line that is cut has no newline, as
// it has none in the log. The error is errReaderGone or errLimit.
func (o *lineWriter) line(l crilog.Line, cut bool) error {
	if o.stream != "" && l.Stream != o.stream {
		return nil
	}
	var at time.Time
	if o.timestamps && !o.partial && !fixedWidth(l.Time) || !o.since.IsZero() {
		if at.UnmarshalText(l.Time) != nil {
			return nil // not a line of a runtime
		}
		if at.Before(o.since) {
			return nil
		}
	}
	before := len(o.buf)
	if o.timestamps && !o.partial {
		if at.IsZero() {
			o.buf = append(o.buf, l.Time...)
		} else {
			o.buf = at.AppendFormat(o.buf, timeLayout)
		}
		o.buf = append(o.buf, ' ')
	}
	o.buf = append(o.buf, l.Text...)
	if !l.Partial && !cut {
		o.buf = append(o.buf, '\n')
	}
	o.partial = l.Partial
	if o.left -= int64(len(o.buf) - before); o.left <= 0 {
		o.buf = o.buf[:len(o.buf)+int(o.left)]
		return errLimit
	}
	if len(o.buf) >= chunk {
		return o.write()
	}
	return nil
}

// fixedWidth reports whether a timestamp has kubelet's format already. Runtimes leave out
// zeros at the end.
func fixedWidth(t []byte) bool {
	return len(t) == len("2006-01-02T15:04:05.000000000Z") && t[10] == 'T' && t[19] == '.' && t[29] == 'Z'
}

func (o *lineWriter) write() error {
	o.began = true
	if _, err := o.w.Write(o.buf); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	if o.buf = o.buf[:0]; cap(o.buf) > 4*chunk { // after a huge line
		o.buf = nil
	}
	return nil
}

// send sends the lines that were written. Nothing may follow for long.
func (o *lineWriter) send() error {
	if err := o.write(); err != nil {
		return err
	}
	if cap(o.buf) > idleBuffer {
		o.buf = nil
	}
	o.flush()
	return nil
}
