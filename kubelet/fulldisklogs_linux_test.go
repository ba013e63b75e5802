package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// A log does not grow beyond its limit, with an agent or without. On a full disk an agent begins all the same: what
// runs goes on, and a new pod waits with a message that says why. When there is space, rotated logs are compressed, and
// the new pod starts.
func TestLogsOnAFullDisk(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	d := newSmallDisk(t, "8m", fmt.Sprintf("containerLogMaxSize: \"%d\"\ncontainerLogMaxFiles: 4\n", limit))
	logs := func(end string) []string {
		found, err := filepath.Glob(filepath.Join(d.root, "logs", "default_writer*", "c", "0.log"+end))
		require.NoError(t, err)
		return found
	}
	inLimit := func() {
		t.Helper()
		for _, name := range logs("*") {
			if info, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) { // since rotated
				require.NoError(t, err)
				assert.LessOrEqual(t, info.Size(), int64(limit), name)
			}
		}
	}
	// compressed waits until logs that were rotated after the given one are compressed, all but the newest, which
	// kubelet leaves as well.
	compressed := func(after string) {
		t.Helper()
		d.eventually("rotated logs are new, and all but one are compressed", func() bool {
			names := logs(".*")
			return len(names) == 3 && strings.TrimSuffix(names[0], ".gz") > after && len(logs(".*.gz")) >= 2
		})
	}

	stop := d.start()
	write(t, filepath.Join(d.manifests, "writer.yaml"), writer)
	compressed("")
	assert.Contains(t, d.command("history", "writer"), "The log of container c is rotated")
	inLimit()
	stop()

	newest := slices.Max(logs(".*"))
	d.eventually("the log is rotated without an agent", func() bool { return slices.Max(logs(".*")) > newest })
	inLimit()
	ballast := filepath.Join(d.root, "ballast")
	full := fills(t, ballast)
	newest = slices.Max(logs(".*"))

	stop = d.start()
	write(t, filepath.Join(d.manifests, "neighbour.yaml"), neighbour)
	d.eventually("the new pod waits for space",
		func() bool { return strings.Contains(d.command("describe", "neighbour"), "no space left on device") })
	assert.Regexp(t, `writer\S*\s+1/1`, d.command("pods"))
	assert.LessOrEqual(t, len(logs(".*")), 3)
	inLimit()
	full()
	require.NoError(t, os.Remove(ballast))

	d.eventually("both pods run", func() bool { return strings.Count(d.command("pods"), "1/1") == 2 })
	compressed(newest)
	inLimit()
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

// inOrder asserts that the lines are numbered, and that another line says so if some are missing, since they came while
// the disk was full.
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
