package server

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// errReaderGone says that the client does not read any more.
var errReaderGone = errors.New("the client went away")

// lineWriter writes lines of logs for people.
type lineWriter struct {
	w          *bufio.Writer
	flush      func()
	timestamps bool
	// began says that the answer has begun, so that it is too late for an error.
	began bool
	// partial says that the last line was to be continued.
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

// send sends what was written.
func (o *lineWriter) send() error {
	o.began = true
	if err := o.w.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	o.flush()
	return nil
}

// end sends the rest.
func (o *lineWriter) end() error {
	if !o.began {
		return nil
	}
	return o.send()
}
