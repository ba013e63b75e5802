package supervise

import (
	"bytes"
	"strings"
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
