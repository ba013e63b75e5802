package crilog

import "bytes"

// The streams of a container (CRI: LogStreamType).
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Line is one line of a log.
type Line struct {
	// Time is RFC 3339 with nanoseconds, as it was written; it is not checked.
	Time []byte
	// Stream is [Stdout] or [Stderr].
	Stream string
	// Partial says that the next line of the stream continues this one.
	Partial bool
	// Text is what the container wrote, without the end of the line.
	Text []byte
}

// Parse reads a line, given without its end. It reports false for one of another
// form. The result refers to the argument.
func Parse(line []byte) (Line, bool) {
	var l Line
	var stream, tags []byte
	var ok bool
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

// Append appends the text, and the end of the line unless it is partial.
func (l Line) Append(out []byte) []byte {
	out = append(out, l.Text...)
	if !l.Partial {
		out = append(out, '\n')
	}
	return out
}
