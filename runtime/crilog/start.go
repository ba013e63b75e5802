package crilog

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
)

// start makes src the oldest file that is not older, or the log, and returns the reader.
func (r *Reader) start(log source, files []Rotated, older func(source) (bool, error)) (*Reader, error) {
	r.src = log
	for _, file := range files {
		s, err := openRotated(r.path, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was the oldest one
		}
		skip := false
		if err == nil {
			skip, err = older(s)
		}
		switch {
		case err != nil:
			return nil, errors.Join(err, s.close(), r.Close())
		case skip:
			_ = s.close()
			continue
		}
		_ = r.src.close()
		r.src = s
		return r, nil
	}
	return r, nil
}

// seek makes the reader start before the last lines.
func (r *Reader) seek(log source, files []Rotated, lines int) error {
	r.src = log
	for {
		missing, err := r.seekIn(lines)
		if err != nil || missing == 0 {
			return err
		}
		var older source
		for ok := false; !ok; files = files[:len(files)-1] {
			if len(files) == 0 {
				return nil // all lines
			}
			older, err = openRotated(r.path, files[len(files)-1])
			if ok = err == nil; !ok && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		_ = r.begin(older)
		lines = missing
	}
}

// seekIn makes the reader start before the last lines of src. missing is the number of lines that come before src.
func (r *Reader) seekIn(lines int) (missing int, err error) {
	if r.src.zip == nil {
		info, err := r.src.f.Stat()
		if err != nil {
			return 0, err
		}
		r.at, r.skip, missing, err = tailOffset(r.src, info.Size(), lines, info.Size())
		return missing, err
	}
	has, err := r.skipLines(-1)
	if err == nil {
		err = r.src.rewind()
	}
	r.at = 0
	if err != nil || has < lines {
		return max(0, lines-has), err
	}
	_, err = r.skipLines(has - lines)
	return 0, err
}

// skipLines skips a number of lines in a compressed file, or all lines if it is negative, and returns how many they
// were.
func (r *Reader) skipLines(lines int) (skipped int, err error) {
	at := r.src.ReaderAt.(*sequential)
	in := bufio.NewReaderSize(at.r, maxBlock)
	for ; skipped != lines; skipped++ {
		line, err := in.ReadSlice('\n')
		at.at += int64(len(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = in.ReadSlice('\n')
			at.at += int64(len(line))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return skipped, err
		}
	}
	r.at, at.r = at.at, in
	return skipped, nil
}
