package process

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A command writes without an end. The first MiB is read at once, and the rest slowly.
func TestCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c capture
		block := bytes.Repeat([]byte("x"), 32<<10)
		began := time.Now()
		for range 32 {
			n, err := c.Write(block)
			require.NoError(t, err)
			assert.Equal(t, len(block), n)
		}
		assert.Zero(t, time.Since(began))
		for range 1000 {
			n, err := c.Write(block)
			require.NoError(t, err)
			assert.Equal(t, len(block), n)
		}
		assert.Equal(t, 1000*discardPause, time.Since(began), "32 MB of it take four seconds")
		assert.Len(t, c.data, 1<<20)
		assert.Less(t, cap(c.data), 3<<20)
	})
}

// A command that writes more than is kept runs to its end, and its exit code counts.
func TestExecBeyondTheLimit(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	id := n.pod().run(shell("c", "exec sleep 1000"))
	resp, err := n.rs.ExecSync(t.Context(), &criv1.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 3"},
		Timeout: 60,
	})
	require.NoError(t, err)
	assert.EqualValues(t, 3, resp.GetExitCode())
	assert.Len(t, resp.GetStdout(), 1<<20)
	assert.Len(t, resp.GetStderr(), 1<<20)
}
