package process

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A sandbox that is stopped has no cgroups any more, also if no client removes it.
func TestStoppedPodHasNoCgroups(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	p.run(shell("c", "sleep 1000"))
	_, err := n.rs.StopPodSandbox(context.Background(), &criv1.StopPodSandboxRequest{PodSandboxId: p.id})
	require.NoError(t, err)
	assertNoCgroups(t, p.record())
	_, err = p.create(shell("d", "sleep 1000"))
	require.Error(t, err)
	assertNoCgroups(t, p.record())
}

// The directory of a server is deleted while its containers run. The names of their cgroups say whose they are.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	other := startNode(t, Options{})
	otherID := other.pod().run(shell("c", "sleep 1000"))
	n := startNode(t, Options{Dir: filepath.Join(t.TempDir(), "process")})
	p := n.pod()
	id := p.run(shell("c", "sleep 1000"))
	rec, state := p.record(), n.state(id)
	if n.limitsOf(id) == "" {
		t.Skip("no cgroups can be made here")
	}
	_, err := CleanUp(t.Context(), n.opts)
	require.ErrorIs(t, err, ErrInUse)
	n.stop()
	require.NoError(t, os.RemoveAll(n.opts.Dir))
	pods, err := CleanUp(t.Context(), n.opts)
	require.NoError(t, err)
	assert.Equal(t, 1, pods)
	assertNoCgroups(t, rec)
	eventually(t, func() bool { return !state.Command.Alive() && !state.Supervisor.Alive() }, "the container goes on")
	assert.NoDirExists(t, n.opts.Dir)
	pods, err = CleanUp(t.Context(), n.opts)
	require.NoError(t, err)
	assert.Zero(t, pods)
	assert.True(t, other.state(otherID).Command.Alive(), "another server's")
}

// A server that was killed while it removed a sandbox has left cgroups without a record.
func TestCgroupsWithoutARecord(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "sleep 1000"))
	rec, state := p.record(), n.state(id)
	n.stop()
	require.NoError(t, os.Remove(filepath.Join(n.opts.Dir, "sandboxes", p.id+".json")))
	n.start()
	assertNoCgroups(t, rec)
	assert.False(t, state.Command.Alive())
}
