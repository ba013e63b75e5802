package crilog

import "bytes"

// The streams of a container (CRI: LogStreamType).
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Line is a line of a log.
type Line struct {
	// Time is the time as it is in the file, in RFC 3339 with nanoseconds. It is not
	// validated.
	Time []byte
	// Stream is [Stdout] or [Stderr].
	Stream string
	// Partial means that the next line of the stream continues this one.
	Partial bool
	// Text is the output of the container, without a newline.
	Text []byte
}

// Parse parses a line without its newline. ok is false if it is not in the format of
// CRI. The result refers to the memory of line.
func Parse(line []byte) (l Line, ok bool) {
	var stream, tags []byte
	if l.Time, line, ok = bytes.Cut(line, []byte{' '}); !ok {
		return Line{}, false
	}
	if stream, line, ok = bytes.Cut(line, []byte{' '}); !ok {
		return Line{}, false
	}
	switch string(stream) {
	case Stdout:
		l.Stream = Stdout
	case Stderr:
		l.Stream = Stderr
	default:
		return Line{}, false
	}
	if tags, l.Text, ok = bytes.Cut(line, []byte{' '}); !ok {
		return Line{}, false
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	l.Partial = string(first) == "P"
	return l, true
}

// Append appends the text to out, and a newline if the line is not partial.
func (l Line) Append(out []byte) []byte {
	out = append(out, l.Text...)
	if !l.Partial {
		out = append(out, '\n')
	}
	return out
}
