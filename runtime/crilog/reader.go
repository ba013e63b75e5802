package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// maxLine bounds a line. Runtimes cut lines at 16 KiB, unless they are told not to cut
	// them at all.
	maxLine = 16 << 20
	// block is how much is read at a time.
	block = 32 << 10
)

// Reader reads the lines of a log. It is for one goroutine at a time.
type Reader struct {
	path string
	f    *os.File    // nil in tests of what reads bytes only
	src  io.ReaderAt // f
	// at is how far src was read.
	at int64
	// buf is read and not yet returned; the first done bytes were returned before.
	buf  []byte
	done int
	// skip says that buf begins amid a line, which is to be left out.
	skip bool
	// rotated says that path had become another file before src was last read.
	rotated bool
}

// Open opens the log for its last lines and what comes after them; all lines if
// the number is negative. Parts of a line count as lines, as they do for kubelet.
func Open(path string, lines int) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, f: f, src: f}
	if lines >= 0 {
		if err := r.seek(lines); err != nil {
			return nil, errors.Join(fmt.Errorf("looking for the last lines of %s: %w", path, err), f.Close())
		}
	}
	return r, nil
}

func (r *Reader) seek(lines int) error {
	info, err := r.f.Stat()
	if err != nil {
		return err
	}
	r.at, r.skip, err = tailOffset(r.src, info.Size(), lines, info.Size())
	return err
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Next returns the next line that is complete. At the end of what is written the
// error is [io.EOF]; the caller may ask again when more may have come. The line is
// valid until the next call.
func (r *Reader) Next() (Line, error) {
	for {
		raw, err := r.next()
		if err != nil {
			return Line{}, err
		}
		if l, ok := Parse(raw); ok {
			return l, nil
		}
	}
}

// Rest returns the line at the end of the file that has no end, when Next has
// returned [io.EOF] and no more is to come.
func (r *Reader) Rest() (Line, bool) {
	if r.skip {
		return Line{}, false
	}
	raw := r.buf[r.done:]
	r.done = len(r.buf)
	return Parse(raw)
}

func (r *Reader) next() ([]byte, error) {
	searched := 0
	for {
		rest := r.buf[r.done:]
		if i := bytes.IndexByte(rest[searched:], '\n'); i >= 0 {
			line := rest[:searched+i]
			r.done += searched + i + 1
			if r.skip {
				r.skip, searched = false, 0
				continue
			}
			return line, nil
		}
		searched = len(rest)
		if len(rest) > maxLine || r.skip {
			r.skip, r.done, searched = true, len(r.buf), 0
		}
		if err := r.fill(); err != nil {
			if errors.Is(err, errNewFile) {
				searched = 0
				continue
			}
			return nil, err
		}
	}
}

// fill reads more into buf. It returns io.EOF if there is nothing more, and
// errNewFile if reading goes on elsewhere.
func (r *Reader) fill() error {
	r.buf = append(r.buf[:0], r.buf[r.done:]...)
	r.done = 0
	have := len(r.buf)
	r.buf = append(r.buf, make([]byte, block)...)
	n, err := r.src.ReadAt(r.buf[have:], r.at)
	r.buf = r.buf[:have+n]
	r.at += int64(n)
	switch {
	case n > 0:
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case r.f == nil:
		return io.EOF
	default:
		return r.turn()
	}
}

// errNewFile says that reading goes on elsewhere.
var errNewFile = errors.New("another file")

// turn looks whether there is a new file, at the end of the old one.
func (r *Reader) turn() error {
	there, err := os.Stat(r.path)
	if err != nil {
		return io.EOF // removed, or renamed and not yet there again
	}
	open, err := r.f.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(there, open) {
		if there.Size() >= r.at {
			return io.EOF
		}
		r.begin(r.f) // truncated
		return errNewFile
	}
	// Between our last read and the rename the runtime may have written to the old one.
	if !r.rotated {
		r.rotated = true
		return errNewFile
	}
	f, err := os.Open(r.path)
	if err != nil {
		return io.EOF
	}
	_ = r.f.Close()
	r.begin(f)
	return errNewFile
}

func (r *Reader) begin(f *os.File) {
	*r = Reader{path: r.path, f: f, src: f, buf: r.buf[:0]}
}
