package process

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// slowClient takes its first output when it is told to.
type slowClient struct {
	out

	once           sync.Once
	began, release chan struct{}
}

func newSlowClient() *slowClient {
	return &slowClient{began: make(chan struct{}), release: make(chan struct{})}
}

func (c *slowClient) Write(b []byte) (int, error) {
	c.once.Do(func() {
		close(c.began)
		<-c.release
	})
	return c.out.Write(b)
}

// A client that takes its output long after the command has ended receives all of it, also if the
// command leaves a process behind that has its streams open.
func TestExecWithASlowClient(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	id := n.pod().run(shell("c", "exec sleep 1000"))
	for _, test := range []struct {
		name string
		tty  bool
		size int // less than the buffer of the kernel, so that the command does not wait for the client
		left string
	}{
		{"pipes", false, 60_000, ""},
		{"pipes of others", false, 60_000, "sleep 1000 & "},
		{"terminal", true, 2000, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			script := fmt.Sprintf("echo $$ > %s; %secho first; read x; head -c %d /dev/zero | tr '\\0' x; exit 6", file,
				test.left, test.size)
			client := newSlowClient()
			streams := runtime.Streams{Stdout: client, TTY: test.tty}
			in, write := io.Pipe()
			streams.Stdin = in
			type result struct {
				code int32
				err  error
			}
			done := make(chan result, 1)
			go func() {
				code, err := n.server.execStream(t.Context(), id, []string{"sh", "-c", script}, streams)
				done <- result{code, err}
			}()
			<-client.began
			_, err := io.WriteString(write, "go\n")
			require.NoError(t, err)
			var pid int
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			_, err = fmt.Sscan(string(data), &pid)
			require.NoError(t, err)
			eventually(t, func() bool { return !alive(pid) }, "the command waits for its client")
			time.Sleep(2 * drainTimeout) // that of a slow client; the test does not depend on it
			close(client.release)
			r := <-done
			require.NoError(t, r.err)
			assert.EqualValues(t, 6, r.code)
			assert.Equal(t, test.size, strings.Count(client.String(), "x"))
			_ = write.Close()
		})
	}
}

// A process that a command leaves behind, and that writes without an end, does not hold its end.
func TestExecThatLeavesAWriter(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	id := n.pod().run(shell("c", "exec sleep 1000"))
	resp, err := n.rs.ExecSync(t.Context(), &criv1.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"sh", "-c", "yes & echo done >&2; exit 7"}})
	require.NoError(t, err)
	assert.EqualValues(t, 7, resp.GetExitCode())
	assert.Equal(t, "done\n", string(resp.GetStderr()))
}
