package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// limited is an open log with a limit, in a directory of its own.
func limited(t *testing.T, limit LogLimit) *logFile {
	t.Helper()
	l := &logFile{path: filepath.Join(t.TempDir(), "0.log"), limit: limit}
	require.NoError(t, l.open())
	t.Cleanup(l.close)
	return l
}

// assertWithin asserts the limit of all files, and returns their number.
func assertWithin(t *testing.T, l *logFile) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(l.path))
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), l.limit.MaxSize, e.Name())
	}
	assert.LessOrEqual(t, len(entries), l.limit.MaxFiles)
	return len(entries)
}

// lines are numbered lines of the output.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// The writer rotates before a file exceeds the limit, however much it receives at once. A reader that follows the
// log gets each line once.
func TestLogLimit(t *testing.T) {
	l := limited(t, LogLimit{MaxSize: 64 << 10, MaxFiles: 200})
	reader, err := crilog.Open(l.path, -1)
	require.NoError(t, err)
	defer func() { assert.NoError(t, reader.Close()) }()
	const total = 100_000
	got := 0
	follow := func() {
		// A reader does not leave a rotated file at once, since runtimes may write to it for a moment.
		files, err := filepath.Glob(l.path + ".*")
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, os.Chtimes(file, now, now))
		}
		for {
			line, err := reader.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("line %d", got), string(line.Text))
			got++
		}
	}
	for i := 0; i < total; i += 5000 {
		l.pump("stdout", strings.NewReader(lines(i, i+5000)))
		follow()
	}
	follow()
	assert.Equal(t, total, got)
	assert.Greater(t, assertWithin(t, l), 50)
}

// The oldest files go, also if nobody compresses them.
func TestLogLimitOfFiles(t *testing.T) {
	l := limited(t, LogLimit{MaxSize: 64 << 10, MaxFiles: 3})
	gz := l.path + ".20200102-030405.gz"
	require.NoError(t, os.WriteFile(gz, nil, 0o600))
	l.pump("stdout", strings.NewReader(lines(0, 50_000)))
	assert.Equal(t, 3, assertWithin(t, l))
	assert.NoFileExists(t, gz)
	data, err := os.ReadFile(l.path)
	require.NoError(t, err)
	assert.Contains(t, string(data), "line 49999\n")
}

// A line that is longer than the limit has a file of its own.
func TestLogLimitOfOneLine(t *testing.T) {
	l := limited(t, LogLimit{MaxSize: 100, MaxFiles: 5})
	l.pump("stdout", strings.NewReader("a\n"+strings.Repeat("x", 200)+"\nb\n"))
	entries, err := os.ReadDir(filepath.Dir(l.path))
	require.NoError(t, err)
	assert.Len(t, entries, 3)
}

// A client that renames the log and has it opened again, as package logs does, loses nothing and doubles nothing.
func TestLogLimitAndReopen(t *testing.T) {
	l := limited(t, LogLimit{MaxSize: 64 << 10, MaxFiles: 1000})
	for i := range 50 {
		l.pump("stdout", strings.NewReader(lines(i*1000, i*1000+500)))
		require.NoError(t, os.Rename(l.path, fmt.Sprintf("%s.20200102-%06d", l.path, i)))
		if i%2 == 0 { // between the rename and the request, the log may reach its limit
			l.pump("stdout", strings.NewReader(lines(i*1000+500, i*1000+1000)))
			require.NoError(t, l.open())
		} else {
			require.NoError(t, l.open())
			l.pump("stdout", strings.NewReader(lines(i*1000+500, i*1000+1000)))
		}
	}
	entries, err := os.ReadDir(filepath.Dir(l.path))
	require.NoError(t, err)
	seen := map[string]int{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(l.path), e.Name()))
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			seen[line[strings.Index(line, "line"):]]++
		}
	}
	assert.Len(t, seen, 50_000)
	for line, n := range seen {
		require.Equal(t, 1, n, line)
	}
}

// If the log cannot be rotated, it grows, and nothing is lost.
func TestLogLimitThatCannotBeHeld(t *testing.T) {
	l := limited(t, LogLimit{MaxSize: 1000, MaxFiles: 3})
	require.NoError(t, os.Rename(filepath.Dir(l.path), filepath.Dir(l.path)+"-gone"))
	t.Cleanup(func() { require.NoError(t, os.Rename(filepath.Dir(l.path)+"-gone", filepath.Dir(l.path))) })
	l.pump("stdout", strings.NewReader(lines(0, 1000)))
	data, err := os.ReadFile(filepath.Join(filepath.Dir(l.path)+"-gone", "0.log"))
	require.NoError(t, err)
	assert.Equal(t, 1000, strings.Count(string(data), "\n"))
}
