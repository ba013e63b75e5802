package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writer writes numbered lines.
const writer = `apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: host, command: [sh, -c, "p=$(printf %0400d 0); i=0; while :; do i=$((i+1)); echo $i $p; sleep 0.005; done"]}
`

// An agent that begins on a full disk rotates a log there. A new pod waits with a message that says why. When there is space, rotated
// logs are compressed, and the new pod starts.
func TestLogsOnAFullDisk(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	d := newSmallDisk(t, "8m", fmt.Sprintf("containerLogMaxSize: \"%d\"\ncontainerLogMaxFiles: 4\n", limit))
	size := func() int64 {
		found, err := filepath.Glob(filepath.Join(d.root, "logs", "default_writer*", "c", "0.log"))
		require.NoError(t, err)
		if len(found) == 0 {
			return 0
		}
		info, err := os.Stat(found[0])
		if err != nil {
			return 0
		}
		return info.Size()
	}
	rotated := func(end string) []string {
		found, err := filepath.Glob(filepath.Join(d.root, "logs", "default_writer*", "c", "0.log.*"+end))
		require.NoError(t, err)
		return found
	}

	stop := d.start()
	write(t, filepath.Join(d.manifests, "writer.yaml"), writer)
	d.eventually("a log is rotated and compressed", func() bool { return len(rotated(".gz")) > 0 })
	assert.Contains(t, d.command("history", "writer"), "The log of container c is rotated")
	stop()
	d.eventually("the log has grown beyond its limit", func() bool { return size() > 2*limit })
	newest := rotated("")
	ballast := filepath.Join(d.root, "ballast")
	full := fills(t, ballast)

	stop = d.start()
	d.eventually("the log is rotated, while the disk is full", func() bool {
		now := rotated("")
		return len(now) > 0 && now[len(now)-1] > newest[len(newest)-1] && size() < limit
	})
	assert.LessOrEqual(t, len(rotated("")), 3)
	write(t, filepath.Join(d.manifests, "neighbour.yaml"), neighbour)
	d.eventually("the new pod waits for space", func() bool { return strings.Contains(d.command("describe", "neighbour"), "no space left on device") })
	assert.Regexp(t, `writer\S*\s+1/1`, d.command("pods"))
	full()
	require.NoError(t, os.Remove(ballast))

	d.eventually("both pods run", func() bool { return strings.Count(d.command("pods"), "1/1") == 2 })
	d.eventually("all rotated logs are new, and all but one are compressed", func() bool {
		names := rotated("")
		return len(names) == 3 && len(rotated(".gz")) >= 2 && !strings.HasPrefix(names[0], newest[0][:len(newest[0])-len(".gz")])
	})
	inOrder(t, d.command("logs", "writer"))
	write(t, filepath.Join(d.manifests, "writer.yaml"), "")
	assert.Contains(t, d.command("stop"), "All pods have ended.\n")
	stop()
}

// fills keeps the disk full until it is called.
func fills(t *testing.T, path string) (end func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	zeros := make([]byte, 4<<10)
	more := func() {
		for {
			if _, err := f.Write(zeros); err != nil {
				return
			}
		}
	}
	more()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			more()
			time.Sleep(time.Millisecond)
		}
	}()
	return func() { cancel(); <-done; _ = f.Close() }
}

// inOrder asserts that the lines are numbered, and that another line says so if some are missing, since they came while the disk was full.
func inOrder(t *testing.T, logs string) {
	t.Helper()
	last, lost := 0, false
	for line := range bytes.Lines([]byte(logs)) {
		if bytes.Contains(line, []byte("bytes of this log are lost")) {
			lost = true
			continue
		}
		number, _, _ := strings.Cut(string(line), " ")
		n, err := strconv.Atoi(number)
		require.NoError(t, err, "%.100q", line)
		require.True(t, n == last+1 || last == 0 || lost && n > last, "line %d after %d", n, last)
		last = n
	}
	assert.Positive(t, last)
}
