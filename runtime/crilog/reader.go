package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

const (
	// maxLine is the maximum length of a line. Runtimes cut lines at 16 KiB by default,
	// but can be configured not to.
	maxLine = 16 << 20
	// The size of a read grows from minBlock to maxBlock while a log is read from its
	// beginning, and is small again at its end: a reader that follows a log keeps little.
	minBlock, maxBlock = 8 << 10, 256 << 10
	// maxSkip is the maximum that is read without finding a line. It bounds the time of a
	// call: a file without lines can be of any size and take no disk.
	maxSkip = 256 << 20
)

// ErrNoLines means that 256 MiB of a file have no line in the format of CRI.
var ErrNoLines = errors.New("the log has no line in the format of CRI for 256 MiB")

// Reader reads the lines of a log. It is not safe for concurrent use.
type Reader struct {
	path string
	f    *os.File    // nil if src is not a file
	src  io.ReaderAt // f
	// at is the offset in src of the next read.
	at int64
	// end is the offset at which the log ends for this reader; negative if it grows.
	end int64
	// buf is what was read. The first done bytes of it were returned.
	buf  []byte
	done int
	// block is the size of the next read.
	block int
	// skip means that buf begins within a line that is skipped.
	skip bool
	// rotated means that path was another file before the last read of src.
	rotated bool
	// skipped is how much was read since the last line in the format of CRI.
	skipped int64
}

// Open opens the log. The reader starts before the last lines, or at the beginning if
// lines is negative. Partial lines count as lines, as they do for kubelet.
//
// Open fails if the path is not that of a regular file. It follows no link there, as
// others than the runtime may be able to write to the directory.
func Open(path string, lines int) (*Reader, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, f: f, src: f, end: -1}
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

// Freeze lets the log end where it ends now: what is written later is not read, and the
// reader does not continue with another file.
func (r *Reader) Freeze() error {
	info, err := r.f.Stat()
	if err != nil {
		return fmt.Errorf("looking for the end of %s: %w", r.path, err)
	}
	r.end = info.Size()
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Next returns the next complete line. At the end of the log the error is [io.EOF], and
// the caller may call Next again later. The line is valid until the next call. Next reads
// no more than 256 MiB; if these have no line, it returns [ErrNoLines].
func (r *Reader) Next() (Line, error) {
	for {
		raw, err := r.next()
		if err != nil {
			return Line{}, err
		}
		if l, ok := Parse(raw); ok {
			r.skipped = 0
			return l, nil
		}
	}
}

// Rest returns the incomplete line at the end of the log. ok is false if there is none.
// It is for a log that is not written any more, after Next has returned [io.EOF].
func (r *Reader) Rest() (l Line, ok bool) {
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

// fill reads more into buf. It returns io.EOF at the end of the log, and errNewFile if
// the reader continues with another file.
func (r *Reader) fill() error {
	if r.done > 0 { // else a long line would be copied for each block of it
		r.buf = append(r.buf[:0], r.buf[r.done:]...)
		r.done = 0
	}
	if r.skipped > maxSkip {
		return ErrNoLines
	}
	have := len(r.buf)
	size := max(r.block, minBlock)
	if r.end >= 0 {
		size = int(min(int64(size), max(0, r.end-r.at)))
	}
	r.buf = slices.Grow(r.buf, size)
	n, err := 0, io.EOF
	if size > 0 {
		n, err = r.src.ReadAt(r.buf[have:have+size], r.at)
	}
	r.buf = r.buf[:have+n]
	r.at += int64(n)
	r.skipped += int64(n)
	if n == size && n > 0 {
		r.block = min(2*size, maxBlock)
	}
	switch {
	case n > 0:
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case r.f == nil || r.end >= 0:
		return io.EOF
	}
	err = r.turn()
	if errors.Is(err, io.EOF) && cap(r.buf) > minBlock && have < minBlock {
		r.buf, r.block = append([]byte(nil), r.buf...), minBlock
	}
	return err
}

// errNewFile means that the reader continues with another file.
var errNewFile = errors.New("another file")

// turn continues with the new file, if there is one, at the end of the old one.
func (r *Reader) turn() error {
	there, err := os.Lstat(r.path)
	if err != nil {
		return io.EOF // removed, or renamed and not made again yet
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
	// The runtime may have written to the old file between the last read and the rename.
	if !r.rotated {
		r.rotated = true
		return errNewFile
	}
	f, err := safefile.Open(r.path)
	if err != nil {
		return io.EOF
	}
	_ = r.f.Close()
	r.begin(f)
	return errNewFile
}

func (r *Reader) begin(f *os.File) {
	*r = Reader{path: r.path, f: f, src: f, end: -1, buf: r.buf[:0], block: r.block}
}
