package cri_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A runtime answers with any error that a container has ended.
func TestReopenLogOfAContainerThatHasEnded(t *testing.T) {
	svc := newService(t)
	pod := podOf("a")
	s := running(t, svc, pod)
	id := s.status().Newest("a").ID
	rt := svc.client(cri.Options{})
	require.NoError(t, rt.ReopenContainerLog(t.Context(), id))

	svc.Inject(fake.Fault{Call: "ReopenContainerLog", Err: errors.New("no space left on device")})
	err := rt.ReopenContainerLog(t.Context(), id)
	require.ErrorContains(t, err, "no space left")
	assert.NotErrorIs(t, err, runtime.ErrNotFound)

	svc.exit("a", 1)
	err = rt.ReopenContainerLog(t.Context(), id)
	require.ErrorIs(t, err, runtime.ErrNotFound)
	require.ErrorContains(t, err, "it has ended")

	require.ErrorIs(t, rt.ReopenContainerLog(t.Context(), runtime.ContainerID{Type: "fake", ID: "none"}),
		runtime.ErrNotFound)
}

// So it is with a command.
func TestExecInAContainerThatHasEnded(t *testing.T) {
	svc := newService(t)
	pod := podOf("a")
	id := running(t, svc, pod).status().Newest("a").ID
	rt := svc.client(cri.Options{})
	svc.Inject(fake.Fault{Call: "ExecSync", Err: errors.New("container is in state X")})
	_, err := rt.Exec(t.Context(), id, []string{"true"}, 0)
	assert.NotErrorIs(t, err, runtime.ErrNotFound)
	svc.exit("a", 1)
	_, err = rt.Exec(t.Context(), id, []string{"true"}, 0)
	require.ErrorIs(t, err, runtime.ErrNotFound)
	require.ErrorContains(t, err, "container is in state X")
}
