package supervise

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC)

const stamp = "2026-01-02T03:04:05.000000060Z"

func TestAppendLog(t *testing.T) {
	long := strings.Repeat("x", maxLogText)
	for name, test := range map[string]struct {
		chunks  []string
		want    []string
		pending string
	}{
		"lines":      {[]string{"a\nb\n"}, []string{"F a", "F b"}, ""},
		"in pieces":  {[]string{"a", "b", "c\nd"}, []string{"F abc"}, "d"},
		"empty line": {[]string{"\n\n"}, []string{"F ", "F "}, ""},
		"just fits":  {[]string{long + "\n"}, []string{"F " + long}, ""},
		"too long":   {[]string{long + "y\n"}, []string{"P " + long, "F y"}, ""},
		"much":       {[]string{long, long, "z\n"}, []string{"P " + long, "P " + long, "F z"}, ""},
	} {
		var out, pending []byte
		for _, c := range test.chunks {
			out, pending = appendLog(out, pending, []byte(c), "stdout", now)
		}
		var want strings.Builder
		for _, w := range test.want {
			want.WriteString(stamp + " stdout " + w + "\n")
		}
		assert.Equal(t, want.String(), string(out), name)
		assert.Equal(t, test.pending, string(pending), name)
	}
}

// disk takes as many bytes as there is room for.
type disk struct {
	strings.Builder
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.Builder.Write(p[:n])
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// Output that a full disk does not take is lost. When there is room again, the log has a line with
// the number of lost bytes.
func TestLogOnAFullDisk(t *testing.T) {
	line := func(stream, text string) string {
		return string(appendLine(nil, nil, []byte(text), stream, "F", now))
	}
	one, two, end := line("stdout", "one"), line("stdout", "two"), line("stdout", "end")
	lost := func(n int) string {
		return line("stderr", fmt.Sprintf("%d bytes of this log are lost: no space left on device", n))
	}
	for name, test := range map[string]struct {
		room [3]int // that there is more before each line
		want string
	}{
		"enough":           {[3]int{1000, 0, 0}, one + two + end},
		"none for one":     {[3]int{len(one), 0, 1000}, one + lost(len(two)) + end},
		"for half of one":  {[3]int{len(one) + 5, 0, 1000}, one + two[:5] + "\n" + lost(len(two)-5) + end},
		"not for the note": {[3]int{0, 7, 1000}, lost(0)[:7] + "\n" + lost(len(one)+len(two)) + end},
	} {
		d, l := &disk{}, &logFile{}
		for i, text := range []string{one, two, end} {
			d.room += test.room[i]
			l.append(d, []byte(text), now)
		}
		assert.Equal(t, test.want, d.String(), name)
	}
}

// FuzzAppendLog puts the log's lines together again, however the stream was cut.
func FuzzAppendLog(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), 2)
	f.Add(bytes.Repeat([]byte("x"), 40_000), 10_000)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		step = max(1, step)
		var out, pending, back []byte
		for rest := data; len(rest) > 0; {
			n := min(step, len(rest))
			out, pending = appendLog(out, pending, rest[:n], "stderr", now)
			require.Less(t, len(pending), maxLogText)
			rest = rest[n:]
		}
		for line := range bytes.Lines(out) {
			text, ok := bytes.CutPrefix(line, []byte(stamp+" stderr "))
			require.True(t, ok)
			body := bytes.TrimSuffix(text[2:], []byte("\n"))
			require.LessOrEqual(t, len(body), maxLogText)
			back = append(back, body...)
			if text[0] == 'F' {
				back = append(back, '\n')
			}
		}
		require.Equal(t, string(data), string(append(back, pending...)))
	})
}
