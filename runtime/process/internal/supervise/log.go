package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxLogText bounds the text of one line of a log; longer lines are cut into parts
// tagged P. It is containerd's max_container_log_line_size and what kubelet's reader is made for.
const maxLogText = 16 << 10

// timeFormat is RFC 3339 with all nine digits (CRI: time.RFC3339Nano, fixed width).
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// appendLog appends to out the log lines that data completes, and returns the rest
// as pending, which is shorter than maxLogText. pending is reused.
func appendLog(out, pending, data []byte, stream string, now time.Time) (newOut, newPending []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 && len(pending)+len(data) < maxLogText {
			return out, append(pending, data...)
		}
		take, tag, skip := end, "F", 1
		if end < 0 || len(pending)+end > maxLogText {
			take, tag, skip = maxLogText-len(pending), "P", 0
		}
		out = appendLine(out, pending, data[:take], stream, tag, now)
		pending, data = pending[:0], data[take+skip:]
	}
	return out, pending
}

func appendLine(out, pending, text []byte, stream, tag string, now time.Time) []byte {
	out = now.AppendFormat(out, timeFormat)
	out = append(out, ' ')
	out = append(out, stream...)
	out = append(out, ' ')
	out = append(out, tag...)
	out = append(out, ' ')
	out = append(out, pending...)
	out = append(out, text...)
	return append(out, '\n')
}

// logFile is where the streams of a container go: its log and those who have
// attached. It never makes the container wait for the disk to have room.
type logFile struct {
	path string // "" for none

	mu sync.Mutex
	f  *os.File
	// lost counts the bytes of lines that could not be written, for the reason why, since the
	// last that could. torn says that what was written ends within a line.
	lost     int
	why      error
	torn     bool
	attached map[*attachment]struct{}
}

// attachment takes the streams as they come.
type attachment struct {
	out, err *os.File // err may be nil
	gone     chan struct{}
}

// attachPatience is how long a container's output waits for an attached reader that
// does not read, before the reader is detached.
const attachPatience = 2 * time.Second

func (l *logFile) open() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f, l.torn = f, false
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
	for a := range l.attached {
		l.drop(a)
	}
}

// drop is called with the lock held.
func (l *logFile) drop(a *attachment) {
	if _, ok := l.attached[a]; !ok {
		return
	}
	delete(l.attached, a)
	_ = a.out.Close()
	if a.err != nil {
		_ = a.err.Close()
	}
	close(a.gone)
}

func (l *logFile) attach(a *attachment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attached == nil {
		l.attached = map[*attachment]struct{}{}
	}
	l.attached[a] = struct{}{}
}

func (l *logFile) detach(a *attachment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(a)
}

// write puts finished lines into the log, and raw bytes before those who are
// attached. What does not go into the log, because the disk is full, is lost; the log
// says how much as soon as it can be written again.
func (l *logFile) write(stream string, lines, raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil && len(lines) > 0 {
		l.append(l.f, lines, time.Now())
	}
	for a := range l.attached {
		f := a.out
		if stream == "stderr" {
			f = a.err
		}
		if f == nil || len(raw) == 0 {
			continue
		}
		_ = f.SetWriteDeadline(time.Now().Add(attachPatience))
		if _, err := f.Write(raw); err != nil {
			l.drop(a)
		}
	}
}

// append writes lines to the log. It is called with the lock held.
func (l *logFile) append(w io.Writer, lines []byte, now time.Time) {
	if l.lost > 0 {
		var note []byte
		if l.torn {
			note = append(note, '\n')
		}
		note = appendLine(note, nil, fmt.Appendf(nil, "%d bytes of this log are lost: %v", l.lost, l.why), "stderr", "F", now)
		if _, err := l.put(w, note); err != nil {
			l.lost += len(lines)
			return
		}
		l.lost, l.why = 0, nil
	}
	if n, err := l.put(w, lines); err != nil {
		l.lost, l.why = len(lines)-n, err
	}
}

// put writes, and notes whether what is written now ends within a line.
func (l *logFile) put(w io.Writer, lines []byte) (n int, err error) {
	if n, err = w.Write(lines); n > 0 {
		l.torn = lines[n-1] != '\n'
	}
	return n, err
}

// pump copies a stream until it ends.
func (l *logFile) pump(stream string, r io.Reader) {
	var (
		buf     = make([]byte, 16<<10)
		pending []byte
		out     []byte
	)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			out, pending = appendLog(out[:0], pending, buf[:n], stream, time.Now())
			l.write(stream, out, buf[:n])
		}
		if err == nil {
			continue
		}
		if len(pending) > 0 {
			l.write(stream, appendLine(out[:0], pending, nil, stream, "F", time.Now()), nil)
		}
		return
	}
}
