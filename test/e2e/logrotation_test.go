package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

func TestLogRotation(t *testing.T) {
	t.Run("containerd", func(t *testing.T) {
		t.Parallel()
		testLogRotation(t, NewCluster(t).StartAgent(t, AgentOptions{Config: rotationSettings()}))
	})
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		testLogRotation(t, StartProcessAgent(t, AgentOptions{Config: rotationSettings()}))
	})
}

func rotationSettings() map[string]any {
	return map[string]any{"containerLogMaxSize": "2Mi", "containerLogMaxFiles": 50}
}

// A container writes numbered lines as fast as it can, while the agent is killed again and again. A reader that follows
// the log from the beginning, also across restarts of the agent, receives each line once, and so does one that reads
// all files at the end.
func testLogRotation(t *testing.T, a *Agent) {
	const lines = 1_000_000
	pod := MakePod("writer", Main(Sh("main", fmt.Sprintf("sleep 1; seq 1 %d; %s", lines, Forever))))
	a.Put(t, pod)
	a.Await(t, pod, within, Running)
	dir := filepath.Join(a.Logs, "default_"+FullName(pod)+"_"+string(a.Await(t, pod, within, Running).UID), "main")

	var read atomic.Int64
	followed := make(chan error, 1)
	cmd, out := followLog(t, a, FullName(pod), "-f")
	go func() { followed <- sequential(out, lines, &read) }()
	for range 3 {
		begun := read.Load()
		Eventually(t, within, "more lines are read", func() error {
			if now := read.Load(); now < begun+lines/8 && now < lines {
				return fmt.Errorf("%d after %d", now, begun)
			}
			return nil
		})
		if read.Load() >= lines {
			break
		}
		a.Kill(t)
		_ = cmd.Wait() // its agent is gone
		require.ErrorIs(t, <-followed, errCut)
		a.Start(t)
		a.WaitHealthy(t)
		a.Await(t, pod, within, Running)
		read.Store(0)
		cmd, out = followLog(t, a, FullName(pod), "-f")
		go func() { followed <- sequential(out, lines, &read) }()
	}
	require.NoError(t, <-followed)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	cmd, out = followLog(t, a, FullName(pod))
	require.NoError(t, sequential(out, lines, &read))
	require.NoError(t, cmd.Wait())
	Eventually(t, within, "all files but the last rotated one are compressed", func() error {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var plain []string
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".gz") {
				plain = append(plain, e.Name())
			}
		}
		if len(plain) > 2 || len(entries) < 4 {
			return fmt.Errorf("%v of %d files", plain, len(entries))
		}
		return nil
	})
	a.Remove(t, pod)
}

// errCut means that the output of a reader ended before the last line.
var errCut = fmt.Errorf("the reader has ended")

// sequential reads the numbers from 1 to last, and fails if one is missing, doubled or out of order.
func sequential(r io.Reader, last int64, read *atomic.Int64) error {
	in := bufio.NewReader(r)
	for want := int64(1); want <= last; want++ {
		line, err := in.ReadString('\n')
		if err != nil { // and the line is cut off
			return errCut
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err != nil || n != want {
			return fmt.Errorf("%q after %d", line, want-1)
		}
		read.Store(want)
	}
	return nil
}

// followLog runs the command "logs" of the agent.
func followLog(t *testing.T, a *Agent, pod string, flags ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), MinikubeletBinary(t),
		append([]string{"logs", "--root-dir", a.Root, pod}, flags...)...)
	cmd.WaitDelay, cmd.Stderr = time.Second, t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, out
}
