package crilog

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// maxTailRead bounds how much of a log [Tail] reads to find its last lines. A line
// is at most 16 KiB and some in containerd and CRI-O.
const maxTailRead = 2 << 20

// Tail returns what the last lines of a log say, at most limit bytes of it, the
// last ones. It looks at no more than the last 2 MiB.
func Tail(path string, lines, limit int) ([]byte, error) {
	f, err := os.Open(path)
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
	offset, amid, err := tailOffset(src, size, lines, most)
	if err != nil {
		return nil, err
	}
	// What is written meanwhile is not read.
	r := &Reader{src: io.NewSectionReader(src, offset, size-offset), skip: amid}
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

// tailOffset returns where the last lines begin, looking at no more than the last
// so many bytes. amid says that it is not known to be the beginning of a line.
func tailOffset(src io.ReaderAt, size int64, lines int, most int64) (offset int64, amid bool, err error) {
	if lines <= 0 {
		return size, false, nil
	}
	stop := max(0, size-most)
	buf := make([]byte, min(block, size-stop))
	for end := size; end > stop; {
		begin := max(stop, end-int64(len(buf)))
		data := buf[:end-begin]
		if n, err := src.ReadAt(data, begin); n < len(data) {
			if errors.Is(err, io.EOF) {
				return 0, false, nil // it was truncated
			}
			return 0, false, err
		}
		if end == size && data[len(data)-1] == '\n' {
			data = data[:len(data)-1] // the last line's own end
		}
		for {
			i := bytes.LastIndexByte(data, '\n')
			if i < 0 {
				break
			}
			if lines--; lines == 0 {
				return begin + int64(i) + 1, false, nil
			}
			data = data[:i]
		}
		end = begin
	}
	return stop, stop > 0, nil
}
