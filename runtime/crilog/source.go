package crilog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// source is a file of a log.
type source struct {
	io.ReaderAt
	f   *os.File     // nil if there is none
	zip *gzip.Reader // nil if the file is not compressed
	// rotated is the name of a rotated file, and "" for the log.
	rotated string
	// after is the name of the newest rotated file when the log was opened: a file with a greater name is the log, or
	// comes after it. It is "" if there was none.
	after string
	// end is the offset at which it ends for the reader; negative if it grows.
	end int64
}

func (s *source) close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// listRotated returns the rotated files of the log, the oldest first.
func listRotated(path string) ([]Rotated, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	files, _ := FindRotated(filepath.Base(path), names)
	return files, nil
}

// maxAttempts bounds how often files are looked for that are renamed meanwhile.
const maxAttempts = 10

// openLog opens the log, and returns the rotated files before it. If there is no log but there are rotated files, the
// log is renamed at this moment: then the newest of them stands for it.
func openLog(path string) (log source, before []Rotated, err error) {
	for range maxAttempts {
		if before, err = listRotated(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return source{}, nil, err
		}
		if log, err = openLogAfter(path, newest(before)); !errors.Is(err, errRotated) {
			break
		}
	}
	if n := len(before); n > 0 && errors.Is(err, fs.ErrNotExist) {
		log, err = openRotated(path, before[n-1])
		before = before[:n-1]
	}
	return log, before, err
}

func newest(files []Rotated) string {
	if len(files) == 0 {
		return ""
	}
	return files[len(files)-1].Name
}

// errRotated means that files were renamed while they were opened.
var errRotated = errors.New("the log is rotated very often")

// openLogAfter opens the log. It fails with errRotated if other files than the log have a greater name than after.
func openLogAfter(path, after string) (source, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return source{}, err
	}
	s := source{ReaderAt: f, f: f, after: after, end: -1}
	files, err := listRotated(path)
	if next, ok := nextTo(files, after); err == nil && ok && !s.isSame(path, next) {
		err = errRotated
	}
	if err != nil {
		return source{}, errors.Join(err, f.Close())
	}
	return s, nil
}

// openRotated opens a rotated file. It may be compressed by now.
func openRotated(path string, file Rotated) (source, error) {
	dir := filepath.Dir(path)
	s := source{rotated: file.Name, end: -1}
	if !file.Compressed {
		f, err := safefile.Open(filepath.Join(dir, file.Name))
		if err == nil {
			s.f, s.ReaderAt = f, f
			return s, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return source{}, err
		}
	}
	f, err := safefile.Open(filepath.Join(dir, file.Name+Compressed))
	if err != nil {
		return source{}, err
	}
	s.f = f
	if err := s.rewind(); err != nil {
		return source{}, errors.Join(err, f.Close())
	}
	return s, nil
}

// rewind begins to decompress the file.
func (s *source) rewind() (err error) {
	if s.zip, err = gzip.NewReader(io.NewSectionReader(s.f, 0, 1<<62)); err == nil {
		s.ReaderAt = &sequential{r: s.zip}
	}
	return err
}

// sequential is an [io.ReaderAt] of which each read begins where the last one has ended.
type sequential struct {
	r  io.Reader
	at int64
}

func (s *sequential) ReadAt(p []byte, at int64) (n int, err error) {
	if at != s.at {
		return 0, errors.New("crilog: a compressed log is read in order only")
	}
	n, err = io.ReadFull(s.r, p)
	s.at += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) { // of the end of the file, or of a file that was cut off
		err = io.EOF
	}
	return n, err
}

// nextTo returns the first file with a greater name.
func nextTo(files []Rotated, name string) (Rotated, bool) {
	for _, f := range files {
		if f.Name > name {
			return f, true
		}
	}
	return Rotated{}, false
}

// settleTime is the time after the last write to a rotated file in which the runtime may write to it again: containerd
// has lines in memory when it opens the new file.
const settleTime = 250 * time.Millisecond

// settlesIn returns the time until the file is taken for complete.
func (s *source) settlesIn() (time.Duration, error) {
	if s.zip != nil {
		return 0, nil
	}
	info, err := s.f.Stat()
	if err != nil {
		return 0, err
	}
	age := time.Since(info.ModTime())
	if age < 0 { // the clock was set back
		return 0, nil
	}
	return max(0, settleTime-age), nil
}

// isSame reports whether a rotated file has the content of the log that is open: it was renamed, and perhaps
// compressed.
func (s *source) isSame(path string, file Rotated) bool {
	other, err := openRotated(path, file)
	if err != nil {
		return false
	}
	defer func() { _ = other.close() }()
	if other.zip == nil {
		a, errA := s.f.Stat()
		b, errB := other.f.Stat()
		return errA == nil && errB == nil && os.SameFile(a, b)
	}
	// No other file begins with the same time.
	begin := func(r io.ReaderAt) []byte {
		buf := make([]byte, 128)
		n, _ := r.ReadAt(buf, 0)
		return buf[:n]
	}
	return bytes.Equal(begin(s.f), begin(other))
}

// next opens the file after this one. The error is io.EOF if there is none yet.
func (s *source) next(path string) (source, error) {
	for range maxAttempts {
		files, err := listRotated(path)
		if err != nil {
			return source{}, err
		}
		if s.rotated == "" {
			if own, ok := nextTo(files, s.after); ok && s.isSame(path, own) {
				s.rotated = own.Name
			}
		}
		after := max(s.rotated, s.after)
		var next source
		if file, ok := nextTo(files, after); ok {
			next, err = openRotated(path, file)
		} else if next, err = openLogAfter(path, after); errors.Is(err, fs.ErrNotExist) {
			return source{}, io.EOF
		}
		switch {
		case err == nil:
			return next, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errRotated):
			return source{}, err
		}
	}
	return source{}, errRotated
}
