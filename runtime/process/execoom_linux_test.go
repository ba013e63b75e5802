package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// limitedTo is a container that waits, with a limit of memory.
func limitedTo(bytes int64, unified map[string]string) *criv1.ContainerConfig {
	config := shell("c", "exec sleep 777")
	config.Linux.Resources = &criv1.LinuxContainerResources{
		MemoryLimitInBytes: bytes, MemorySwapLimitInBytes: bytes, OomScoreAdj: 999, Unified: unified,
	}
	return config
}

// A command that exceeds the memory of its container ends, and says why. The container goes on.
func TestExecExceedsTheMemory(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	if n.server.cgroups.of("", "x").None() || os.Geteuid() != 0 {
		t.Skip("without limits of memory")
	}
	id := n.pod().run(limitedTo(32<<20, nil))
	hog := []string{"sh", "-c", `x=a; while :; do x="$x$x"; done`}
	resp, err := n.rs.ExecSync(t.Context(), &criv1.ExecSyncRequest{ContainerId: id, Cmd: hog})
	require.NoError(t, err)
	assert.EqualValues(t, 137, resp.GetExitCode())
	assert.Equal(t, oomMessage, string(resp.GetStderr()))
	var screen bytes.Buffer
	code, err := n.server.execStream(t.Context(), id, hog, runtime.Streams{TTY: true, Stdout: &screen})
	require.NoError(t, err)
	assert.EqualValues(t, 137, code)
	assert.Equal(t, strings.TrimSpace(oomMessage)+"\r\n", screen.String())
	resp, err = n.rs.ExecSync(t.Context(), &criv1.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"sh", "-c", "kill -9 $$"}})
	require.NoError(t, err)
	assert.EqualValues(t, 137, resp.GetExitCode())
	assert.Empty(t, string(resp.GetStderr()), "another reason")
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(id).GetState())
}

// Commands start in a container at its memory limit. The kernel kills processes of the container: commands,
// or the container itself, and never its supervisor, whose end would lose the reason.
func TestExecsAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	if n.server.cgroups.of("", "x").None() || os.Geteuid() != 0 {
		t.Skip("without limits of memory")
	}
	execsAtTheMemoryLimit(t, n, nil)
}

func execsAtTheMemoryLimit(t *testing.T, n *node, unified map[string]string) {
	t.Helper()
	id := n.pod().run(limitedTo(4<<20, unified))
	state := n.state(id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var execs sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{} // by exit code and error output
	for range 150 {
		execs.Go(func() {
			resp, err := n.rs.ExecSync(ctx, &criv1.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "777"}})
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				if ends[fmt.Sprint(resp.GetExitCode(), string(resp.GetStderr()))]++; ends["137"+oomMessage] >= 8 {
					cancel()
				}
			}
		})
	}
	execs.Wait()
	t.Log(ends)
	if !state.Command.Alive() { // and the commands are killed with the container
		assert.Equal(t, "OOMKilled", n.exited(id).GetReason())
		return
	}
	assert.True(t, state.Supervisor.Alive())
	for end := range ends {
		assert.Contains(t, end, "memory", "an end without a reason")
	}
}

// The kernel kills the processes in a memory cgroup that is at its limit, those with a high score first. A
// supervisor is not in that of its container, and keeps its score, while it executes commands.
func TestSupervisorIsInNoMemoryCgroup(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	id := n.pod().run(limitedTo(256<<20, nil))
	dir := n.state(id).Cgroup.V1["memory"]
	if dir == "" {
		t.Skip("without cgroups of version 1")
	}
	supervisor := filepath.Join("/proc", strconv.Itoa(n.state(id).Supervisor.PID))
	own := read(t, filepath.Join(supervisor, "oom_score_adj"))
	ctx, cancel := context.WithCancel(t.Context())
	var execs sync.WaitGroup
	execs.Go(func() {
		defer cancel()
		for range 30 {
			resp, err := n.rs.ExecSync(t.Context(), &criv1.ExecSyncRequest{
				ContainerId: id, Cmd: []string{"cat", "/proc/self/oom_score_adj", "/proc/self/cgroup"},
			})
			if !assert.NoError(t, err) {
				return
			}
			assert.Contains(t, string(resp.GetStdout()), "999\n")
			assert.Contains(t, string(resp.GetStdout()), filepath.Base(dir)+"\n")
		}
	})
	for ctx.Err() == nil {
		for _, tid := range strings.Fields(read(t, filepath.Join(dir, "tasks"))) {
			assert.NoDirExists(t, filepath.Join(supervisor, "task", tid))
		}
		assert.Equal(t, own, read(t, filepath.Join(supervisor, "oom_score_adj")))
	}
	execs.Wait()
}
