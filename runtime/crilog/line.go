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
	// Almost all lines are "stdout F " or the like, where no search is needed.
	if len(line) > 8 && line[6] == ' ' && line[8] == ' ' && (line[7] == 'F' || line[7] == 'P') {
		stream, tags, l.Text = line[:6], line[7:8], line[9:]
	} else {
		if stream, line, ok = bytes.Cut(line, []byte{' '}); !ok {
			return Line{}, false
		}
		if tags, l.Text, ok = bytes.Cut(line, []byte{' '}); !ok {
			return Line{}, false
		}
		tags, _, _ = bytes.Cut(tags, []byte{':'})
	}
	switch string(stream) {
	case Stdout:
		l.Stream = Stdout
	case Stderr:
		l.Stream = Stderr
	default:
		return Line{}, false
	}
	l.Partial = string(tags) == "P"
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
