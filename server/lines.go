package server

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// errReaderGone means that the client has disconnected.
var errReaderGone = errors.New("the client disconnected")

// lineWriter writes the lines of a log to a client.
type lineWriter struct {
	w          *bufio.Writer
	flush      func()
	timestamps bool
	// began means that the answer has begun, so that it cannot be an error any more.
	began bool
	// partial means that the next line continues the last one.
	partial bool
	buf     []byte
}

func (o *lineWriter) write(l crilog.Line) error {
	o.buf = o.buf[:0]
	if o.timestamps && !o.partial {
		o.buf = append(append(o.buf, l.Time...), ' ')
	}
	o.buf = l.Append(o.buf)
	o.began, o.partial = true, l.Partial
	if _, err := o.w.Write(o.buf); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	return nil
}

// send sends the lines that were written.
func (o *lineWriter) send() error {
	o.began = true
	if err := o.w.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	o.flush()
	return nil
}

// end sends the last lines.
func (o *lineWriter) end() error {
	if !o.began {
		return nil
	}
	return o.send()
}
