package crilog

import (
	"bytes"
	"errors"
	"io"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// maxTailRead is the maximum that [Tail] reads of a log. A line of containerd or CRI-O
// has little more than 16 KiB.
const maxTailRead = 2 << 20

// tailBlock is the size of a read from the end.
const tailBlock = 32 << 10

// Tail returns the text of the last lines of a log, and of that the last limit bytes. It
// reads no more than the last 2 MiB of the log. It fails if the path is not that of a
// regular file.
func Tail(path string, lines, limit int) ([]byte, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return tail(f, info.Size(), lines, limit, maxTailRead)
}

func tail(src io.ReaderAt, size int64, lines, limit int, most int64) ([]byte, error) {
	offset, amid, _, err := tailOffset(src, size, lines, most)
	if err != nil {
		return nil, err
	}
	// What is written from now on is not read.
	r := &Reader{src: source{ReaderAt: io.NewSectionReader(src, offset, size-offset), end: -1}, skip: amid}
	var out []byte
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = l.Append(out)
	}
	if l, ok := r.Rest(); ok {
		out = l.Append(out)
	}
	return out[max(0, len(out)-limit):], nil
}

// tailOffset returns the offset of the last lines. It reads no more than the last most
// bytes, and goes back no further than to a line that is too long. amid means that the
// offset may be within a line. missing is the number of lines that come before the beginning of src.
func tailOffset(src io.ReaderAt, size int64, lines int, most int64) (offset int64, amid bool, missing int, err error) {
	if lines <= 0 {
		return size, false, 0, nil
	}
	stop := max(0, size-most)
	buf := make([]byte, min(tailBlock, size-stop))
	line := size // the end of the line that is looked at
	for end := size; end > stop; {
		begin := max(stop, end-int64(len(buf)))
		data := buf[:end-begin]
		if n, err := src.ReadAt(data, begin); n < len(data) {
			if errors.Is(err, io.EOF) {
				return 0, false, 0, nil // truncated
			}
			return 0, false, 0, err
		}
		if end == size && data[len(data)-1] == '\n' {
			data = data[:len(data)-1] // the newline of the last line
		}
		for {
			i := bytes.LastIndexByte(data, '\n')
			if i < 0 {
				break
			}
			if lines--; lines == 0 {
				return begin + int64(i) + 1, false, 0, nil
			}
			data, line = data[:i], begin+int64(i)
		}
		if line-begin > maxLine {
			return begin, begin > 0, 0, nil
		}
		end = begin
	}
	if stop == 0 && size > 0 {
		lines-- // the first one
	}
	return stop, stop > 0, lines, nil
}
