package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const at = "2026-01-02T03:04:05.000000006Z "

func TestParse(t *testing.T) {
	l, ok := Parse([]byte(at + "stderr P:x a b "))
	require.True(t, ok)
	assert.Equal(t, Line{Time: []byte(at[:len(at)-1]), Stream: Stderr, Partial: true, Text: []byte("a b ")}, l)
	for _, bad := range []string{"", "x", at, at + "stdin F one", at + "stdout", at + "stdout F", "stdout F x"} {
		_, ok := Parse([]byte(bad))
		assert.False(t, ok, bad)
	}
}

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
		{name: "other lines say nothing", data: "x\n" + at + "stdin F one\n" + at + "stdout\n" + at + "stdout F\n" + at + "stdout F two\n", lines: 9, limit: 100, want: "two\n"},
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

// FuzzReader: however a log is cut into reads, the lines are the same.
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
		r := &Reader{src: grown}
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

// growing is a file of which only the beginning is there yet.
type growing struct {
	data []byte
	size int
}

func (g *growing) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(g.data[:g.size]).ReadAt(p, off)
}

func TestTailReadsTheEndOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var log strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&log, "%sstdout F line %d %s\n", at, i, strings.Repeat("x", i%300))
	}
	require.NoError(t, os.WriteFile(path, []byte(log.String()), 0o600))
	got, err := Tail(path, 3, 10000)
	require.NoError(t, err)
	assert.Equal(t, 3, bytes.Count(got, []byte{'\n'}))
	assert.True(t, strings.HasPrefix(string(got), "line 19997 "), "%.20q", got)

	whole, err := Tail(path, 1000000, 1<<30)
	require.NoError(t, err)
	assert.Contains(t, string(whole), "\nline 19000 ")
	assert.NotContains(t, string(whole), "line 0 ")
}

// drain reads what there is.
func drain(t *testing.T, r *Reader) string {
	t.Helper()
	var out []byte
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return string(out)
		}
		require.NoError(t, err)
		out = l.Append(out)
	}
}

func appendTo(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	for _, l := range lines {
		_, err := f.WriteString(at + "stdout F " + l + "\n")
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "one", "two")
	r, err := Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, "one\ntwo\n", drain(t, r))
	assert.Empty(t, drain(t, r))
	appendTo(t, path, "three")
	assert.Equal(t, "three\n", drain(t, r))

	// Rotation: the runtime writes to the old file until it is told to go over.
	appendTo(t, path, "four")
	require.NoError(t, os.Rename(path, path+".1"))
	assert.Equal(t, "four\n", drain(t, r))
	appendTo(t, path+".1", "five")
	appendTo(t, path, "six")
	assert.Equal(t, "five\nsix\n", drain(t, r))
	appendTo(t, path, "seven")
	assert.Equal(t, "seven\n", drain(t, r))

	require.NoError(t, os.Truncate(path, 0))
	appendTo(t, path, "8")
	assert.Equal(t, "8\n", drain(t, r))
	require.NoError(t, os.Remove(path))
	assert.Empty(t, drain(t, r))
}

func TestOpenAtTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	_, err := Open(path, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	for i := range 5000 {
		appendTo(t, path, fmt.Sprintf("line %d", i))
	}
	for _, tt := range []struct{ lines, want int }{{0, 0}, {1, 1}, {1000, 1000}, {9000, 5000}, {-1, 5000}} {
		r, err := Open(path, tt.lines)
		require.NoError(t, err)
		got := drain(t, r)
		assert.Equal(t, tt.want, strings.Count(got, "\n"), tt.lines)
		if tt.want > 0 {
			assert.True(t, strings.HasPrefix(got, fmt.Sprintf("line %d\n", 5000-tt.want)), "%.20q", got)
		}
		appendTo(t, path, "more")
		assert.Equal(t, "more\n", drain(t, r))
		require.NoError(t, r.Close())
		require.NoError(t, os.Truncate(path, int64(len(at)*5000+len("stdout F line \n")*5000+10+90*2+900*3+4000*4)))
	}
}

func TestALineThatIsTooLongIsSkipped(t *testing.T) {
	data := at + "stdout F " + strings.Repeat("x", maxLine+block) + "\n" + at + "stdout F two\n"
	r := &Reader{src: strings.NewReader(data)}
	assert.Equal(t, "two\n", drain(t, r))
}

func ExampleReader() {
	dir, _ := os.MkdirTemp("", "crilog")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "0.log")
	_ = os.WriteFile(path, []byte(at+"stdout F hello\n"+at+"stderr F world\n"), 0o600)

	r, err := Open(path, 1)
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err != nil {
			break // io.EOF: ask again later
		}
		fmt.Printf("%s: %s\n", line.Stream, line.Text)
	}
	// Output: stderr: world
}
