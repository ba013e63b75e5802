package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// maxLogText is the maximum size of the text of a line. Longer lines are split into parts
// with the tag P. It is containerd's max_container_log_line_size, which kubelet's reader
// expects.
const maxLogText = 16 << 10

// timeFormat is RFC 3339 with nine digits: time.RFC3339Nano in a fixed width.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// appendLog appends to out the log lines that data completes. newPending is the rest, which
// is shorter than maxLogText. It reuses the memory of pending.
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

// logFile receives the streams of a container. It writes them to the log and to attached
// clients. If the disk is full, the container does not wait.
type logFile struct {
	path string // empty means no log

	mu sync.Mutex
	f  *os.File
	// size is that of f. limit is when it is rotated. Until retry, a rotation that has failed is not tried again.
	size  int64
	limit LogLimit
	retry time.Time
	// lost is the number of bytes since the last write that could not be written, and why is
	// the reason. torn means that the file ends within a line.
	lost     int
	why      error
	torn     bool
	attached map[*attachment]struct{}
}

// attachment is an attached client.
type attachment struct {
	out, err *os.File // err may be nil
	gone     chan struct{}
}

// attachPatience is the time for which the output of a container waits for an attached
// client that does not read. After it, the client is detached.
const attachPatience = 2 * time.Second

func (l *logFile) open() error {
	if l.path == "" {
		return nil
	}
	l.mu.Lock() // when the new file exists, nothing more is written to the old one
	defer l.mu.Unlock()
	return l.openLocked()
}

// openLocked is open for a caller that holds the lock.
func (l *logFile) openLocked() error {
	f, err := openLog(l.path)
	if err != nil {
		return err
	}
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f, l.torn, l.size = f, false, 0
	if st, err := f.Stat(); err == nil {
		l.size = st.Size()
	}
	return nil
}

func (l *logFile) setLimit(limit LogLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
}

// openLog opens a log for writing, and makes it if it does not exist. A container may have put
// something else there: a link to a file of another user, a FIFO, which nothing reads, or a
// device, on which opening it has an effect. These are not opened.
func openLog(path string) (*os.File, error) {
	for range 8 { // the container may remove and make it meanwhile
		f, err := safefile.OpenAppend(path)
		if !errors.Is(err, fs.ErrNotExist) {
			if errors.Is(err, safefile.ErrType) {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return f, err
		}
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o640)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("%s: something else comes and goes there", path)
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

// drop detaches a client. The caller holds the lock.
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

// write writes complete lines to the log and raw bytes to attached clients. Lines that
// cannot be written, as on a full disk, are lost; the log has their number as soon as it can
// be written again.
func (l *logFile) write(stream string, lines, raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil && len(lines) > 0 {
		l.store(lines, time.Now())
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

// append writes lines to the log. The caller holds the lock.
func (l *logFile) append(w io.Writer, lines []byte, now time.Time) {
	if l.lost > 0 {
		var note []byte
		if l.torn {
			note = append(note, '\n')
		}
		note = appendLine(note, nil, fmt.Appendf(nil, "%d bytes of this log are lost: %v", l.lost, l.why), "stderr",
			"F", now)
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

// put writes lines and sets torn.
func (l *logFile) put(w io.Writer, lines []byte) (n int, err error) {
	if n, err = w.Write(lines); n > 0 {
		l.torn = lines[n-1] != '\n'
		l.size += int64(n)
	}
	return n, err
}

// pump copies a stream to the log until it ends.
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
