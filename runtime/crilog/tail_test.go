package crilog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is the time of every line of the tests.
const at = "2026-01-02T03:04:05.000000006Z "

func tailString(data string, lines, limit int, most int64) string {
	out, err := tail(strings.NewReader(data), int64(len(data)), lines, limit, most)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func TestTail(t *testing.T) {
	for _, tt := range []struct {
		name  string
		data  string
		most  int64 // 0: all
		lines int
		limit int
		want  string
	}{
		{name: "nothing", lines: 5, limit: 100},
		{name: "both streams", data: at + "stdout F one\n" + at + "stderr F two\n", lines: 5, limit: 100, want: "one\ntwo\n"},
		{name: "partial lines are joined", data: at + "stdout P one\n" + at + "stdout F  two\n", lines: 5, limit: 100, want: "one two\n"},
		{name: "further tags", data: at + "stdout P:x one\n" + at + "stdout F:y two\n", lines: 5, limit: 100, want: "onetwo\n"},
		{name: "an empty line", data: at + "stdout F \n", lines: 5, limit: 100, want: "\n"},
		{name: "the last lines", data: at + "stdout F one\n" + at + "stdout F two\n" + at + "stdout F three\n", lines: 2, limit: 100, want: "two\nthree\n"},
		{name: "the last bytes", data: at + "stdout F one\n" + at + "stdout F two\n", lines: 5, limit: 5, want: "\ntwo\n"},
		{name: "a last line without end", data: at + "stdout F one\n" + at + "stdout F tw", lines: 5, limit: 100, want: "one\ntw\n"},
		{name: "that line is one of the last", data: at + "stdout F one\n" + at + "stdout F tw", lines: 1, limit: 100, want: "tw\n"},
		{name: "other lines are skipped", data: "x\n" + at + "stdin F one\n" + at + "stdout\n" + at + "stdout F\n" + at + "stdout F two\n", lines: 9, limit: 100, want: "two\n"},
		{name: "the rest of a line", data: at + "stdout F on\n" + at + "stdout F two\n", most: 60, lines: 5, limit: 100, want: "two\n"},
		{name: "less than a line", data: at + "stdout F one\n", most: 10, lines: 5, limit: 100},
		{name: "no line", data: at + "stdout F one\n", lines: 0, limit: 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.most == 0 {
				tt.most = maxTailRead
			}
			assert.Equal(t, tt.want, tailString(tt.data, tt.lines, tt.limit, tt.most))
		})
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte(at+"stdout P one\n"+at+"stderr F two"), int64(50), 3, 10)
	f.Fuzz(func(t *testing.T, data []byte, most int64, lines, limit int) {
		lines, limit, most = lines&0xff, limit&0xffff, most&0xffff
		out, err := tail(bytes.NewReader(data), int64(len(data)), lines, limit, most)
		require.NoError(t, err)
		if len(out) > limit {
			t.Fatalf("%d bytes, limit %d", len(out), limit)
		}
		if n := bytes.Count(out, []byte{'\n'}); n > lines {
			t.Fatalf("%d lines, limit %d", n, lines)
		}
	})
}

// FuzzReader shows that the lines are the same wherever a read ends.
func FuzzReader(f *testing.F) {
	f.Add([]byte(at+"stdout P one\n"+at+"stderr F two\nx\n"), 7)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var want, got []byte
		for raw := range bytes.SplitSeq(data, []byte{'\n'}) {
			if l, ok := Parse(raw); ok {
				want = l.Append(want)
			}
		}
		grown := &growing{data: data, size: (at & 0xffff) % (len(data) + 1)}
		r := &Reader{src: source{ReaderAt: grown, end: -1}}
		for range 2 {
			for {
				l, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				got = l.Append(got)
			}
			grown.size = len(data)
		}
		if l, ok := r.Rest(); ok {
			got = l.Append(got)
		}
		require.Equal(t, string(want), string(got))
	})
}

// growing is a file of which only the beginning is written.
type growing struct {
	data []byte
	size int
}

func (g *growing) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(g.data[:g.size]).ReadAt(p, off)
}
