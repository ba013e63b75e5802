package crilog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is the time of every line of the tests.
const at = "2026-01-02T03:04:05.000000006Z "

func TestParse(t *testing.T) {
	l, ok := crilog.Parse([]byte(at + "stderr P:x a b "))
	require.True(t, ok)
	assert.Equal(t, crilog.Line{Time: []byte(at[:len(at)-1]), Stream: crilog.Stderr, Partial: true,
		Text: []byte("a b ")}, l)
	for _, bad := range []string{"", "x", at, at + "stdin F one", at + "stdout", at + "stdout F", "stdout F x"} {
		_, ok := crilog.Parse([]byte(bad))
		assert.False(t, ok, bad)
	}
}

func TestTailReadsTheEndOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var log strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&log, "%sstdout F line %d %s\n", at, i, strings.Repeat("x", i%300))
	}
	require.NoError(t, os.WriteFile(path, []byte(log.String()), 0o600))
	got, err := crilog.Tail(path, 3, 10000)
	require.NoError(t, err)
	assert.Equal(t, 3, bytes.Count(got, []byte{'\n'}))
	assert.True(t, strings.HasPrefix(string(got), "line 19997 "), "%.20q", got)

	whole, err := crilog.Tail(path, 1000000, 1<<30)
	require.NoError(t, err)
	assert.Contains(t, string(whole), "\nline 19000 ")
	assert.NotContains(t, string(whole), "line 0 ")
}

// drain reads to the end of what is written.
func drain(t *testing.T, r *crilog.Reader) string {
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

// appendTo writes lines, a minute ago.
func appendTo(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	for _, l := range lines {
		_, err := f.WriteString(at + "stdout F " + l + "\n")
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	ago := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(path, ago, ago))
}

// The runtime may write to the old file for a moment after it has opened the new one.
func TestLinesThatComeLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "one")
	r, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, "one\n", drain(t, r))
	assert.Zero(t, r.RetryAfter())
	old := path + ".20260102-030405"
	require.NoError(t, os.Rename(path, old))
	appendTo(t, path, "three")
	now := time.Now().Add(-time.Millisecond)
	require.NoError(t, os.Chtimes(old, now, now))
	assert.Empty(t, drain(t, r))
	assert.Positive(t, r.RetryAfter())
	frozen, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer frozen.Close()
	require.NoError(t, frozen.Freeze())
	assert.Equal(t, "one\n", drain(t, frozen), "a log without the lines that come late ends before them")
	appendTo(t, old, "two")
	assert.Equal(t, "two\nthree\n", drain(t, r))
	assert.Zero(t, r.RetryAfter())
}

// A log that gets its name back after a rotation that failed is the log again.
func TestNameIsGivenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "one")
	r, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, "one\n", drain(t, r))
	require.NoError(t, os.Rename(path, path+".20260102-030405"))
	appendTo(t, path, "of another runtime")
	now := time.Now()
	require.NoError(t, os.Chtimes(path+".20260102-030405", now, now))
	assert.Empty(t, drain(t, r))
	assert.Positive(t, r.RetryAfter())
	require.NoError(t, os.Rename(path+".20260102-030405", path))
	assert.Empty(t, drain(t, r))
	assert.Zero(t, r.RetryAfter())
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "one", "two")
	r, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, "one\ntwo\n", drain(t, r))
	assert.Empty(t, drain(t, r))
	appendTo(t, path, "three")
	assert.Equal(t, "three\n", drain(t, r))

	// Rotation: the runtime writes to the old file until the log is reopened.
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
	_, err := crilog.Open(path, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	for i := range 5000 {
		appendTo(t, path, fmt.Sprintf("line %d", i))
	}
	for _, tt := range []struct{ lines, want int }{{0, 0}, {1, 1}, {1000, 1000}, {9000, 5000}, {-1, 5000}} {
		r, err := crilog.Open(path, tt.lines)
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
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, strings.Repeat("x", 17<<20), "two")
	r, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, "two\n", drain(t, r))
}
