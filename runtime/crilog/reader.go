package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
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

// Reader reads the lines of a log, also those in its rotated files. It is not safe for concurrent use.
type Reader struct {
	path string
	// src is the file that is read, and at the offset in it of the next read.
	src source
	at  int64
	// frozen means that the log ends with src and the files in rest.
	frozen bool
	rest   []source
	// buf is what was read. The first done bytes of it were returned.
	buf  []byte
	done int
	// block is the size of the next read.
	block int
	// skip means that buf begins within a line that is skipped.
	skip bool
	// settled means that src was complete before its last read.
	settled bool
	// retryAfter is the time until the end of src counts as final, 0 if it does, or src grows.
	retryAfter time.Duration
	// skipped is how much was read since the last line in the format of CRI.
	skipped int64
}

// Open opens the log and its rotated files. The reader starts before the last lines, or at the beginning of the oldest
// file if lines is negative. Partial lines count as lines, as they do for kubelet. What is read of the files is
// proportional to the lines; of a compressed file, all is read.
//
// Open fails if the path is not that of a regular file. It follows no link there, as
// others than the runtime may be able to write to the directory.
func Open(path string, lines int) (*Reader, error) {
	log, files, err := openLog(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path}
	if lines < 0 {
		return r.start(log, files, func(source) (older bool, err error) { return false, nil })
	}
	if err := r.seek(log, files, lines); err != nil {
		return nil, errors.Join(fmt.Errorf("looking for the last lines of %s: %w", path, err), r.Close())
	}
	return r, nil
}

// OpenSince is Open at the beginning of the oldest file that was written to since then.
func OpenSince(path string, since time.Time) (*Reader, error) {
	log, files, err := openLog(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path}
	return r.start(log, files, func(s source) (older bool, err error) {
		info, err := s.f.Stat()
		return err == nil && info.ModTime().Before(since), err
	})
}

// Freeze lets the log end where it ends now: what is written later is not read, and the
// reader does not continue with files of later rotations.
func (r *Reader) Freeze() error {
	if r.frozen {
		return nil
	}
	last := &r.src
	for last.rotated != "" {
		if settles, err := last.settlesIn(); err != nil || settles > 0 {
			break // the runtime may still write to it, so what is after it is written later
		}
		next, err := last.next(r.path)
		if errors.Is(err, io.EOF) {
			break // the log was renamed, and is not made again yet
		}
		if err != nil {
			return fmt.Errorf("looking for the end of %s: %w", r.path, err)
		}
		r.rest = append(r.rest, next)
		last = &r.rest[len(r.rest)-1]
	}
	info, err := last.f.Stat()
	if err != nil {
		return fmt.Errorf("looking for the end of %s: %w", r.path, err)
	}
	if last.zip == nil {
		last.end = info.Size()
	}
	r.frozen = true
	return nil
}

// Close closes the files.
func (r *Reader) Close() error {
	err := r.src.close()
	for _, s := range r.rest {
		err = errors.Join(err, s.close())
	}
	return err
}

// RetryAfter returns the time after which Next may return more although nothing changes; 0 if there is none. After a
// rotation the runtime may still write to the old file for a moment, so the reader does not leave it at once.
func (r *Reader) RetryAfter() time.Duration { return r.retryAfter }

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
	if r.src.end >= 0 {
		size = int(min(int64(size), max(0, r.src.end-r.at)))
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
	}
	err = r.advance()
	if errors.Is(err, io.EOF) && cap(r.buf) > minBlock && have < minBlock {
		r.buf, r.block = append([]byte(nil), r.buf...), minBlock
	}
	return err
}

// errNewFile means that the reader continues with another file.
var errNewFile = errors.New("another file")

// advance continues with the next file, if there is one, at the end of src.
func (r *Reader) advance() error {
	r.retryAfter = 0
	switch {
	case r.frozen && len(r.rest) > 0:
		next := r.rest[0]
		r.rest = r.rest[1:]
		return r.begin(next)
	case r.frozen || r.src.f == nil:
		return io.EOF
	}
	if r.src.rotated == "" {
		there, err := os.Lstat(r.path)
		if err != nil {
			return io.EOF // removed, or renamed and not made again yet
		}
		open, err := r.src.f.Stat()
		if err != nil {
			return err
		}
		if os.SameFile(there, open) {
			if there.Size() >= r.at {
				return io.EOF
			}
			r.restart() // truncated
			return errNewFile
		}
	}
	var err error
	if r.retryAfter, err = r.src.settlesIn(); err != nil {
		return err
	}
	if r.retryAfter > 0 {
		return io.EOF
	}
	if !r.settled { // it may have been written to since the last read
		r.settled = true
		return errNewFile
	}
	next, err := r.src.next(r.path)
	if err != nil {
		return io.EOF
	}
	return r.begin(next)
}

// begin continues with another file.
func (r *Reader) begin(next source) error {
	_ = r.src.close()
	r.src = next
	r.restart()
	return errNewFile
}

// restart continues at the beginning of src.
func (r *Reader) restart() {
	r.at, r.buf, r.done, r.skip, r.settled, r.retryAfter, r.skipped = 0, r.buf[:0], 0, false, false, 0, 0
}
