package cri

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestExec(t *testing.T) {
	id := runtime.ContainerID{Type: "fake", ID: "c1"}
	t.Run("exit code", func(t *testing.T) {
		svc := newService()
		svc.exec = func(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
			return &criv1.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 2}, nil
		}
		res, err := svc.runtime(Options{}).Exec(t.Context(), id, []string{"x"}, 0)
		require.NoError(t, err)
		assert.Equal(t, runtime.ExecResult{Output: []byte("outerr"), ExitCode: 2}, res)
	})
	t.Run("no such container", func(t *testing.T) {
		svc := newService()
		svc.exec = func(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
			return nil, notFound("container", "c1")
		}
		_, err := svc.runtime(Options{}).Exec(t.Context(), id, []string{"x"}, 0)
		assert.ErrorIs(t, err, runtime.ErrNotFound)
		assert.EqualError(t, err, `command ["x"]: container fake://c1: ExecSync: container "c1" not found`)
	})
	t.Run("timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			svc := newService()
			var asked int64
			svc.exec = func(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
				asked = req.Timeout
				<-ctx.Done()
				return nil, status.Error(codes.DeadlineExceeded, "timeout exceeded")
			}
			began := time.Now()
			_, err := svc.runtime(Options{CallTimeout: time.Second}).Exec(t.Context(), id, []string{"x"}, 1500*time.Millisecond)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 1500*time.Millisecond, time.Since(began))
			assert.Equal(t, int64(2), asked, "rounded up")
		})
	})
}

func TestRemoveContainer(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a"))
	c := svc.byName("a")
	id := s.status().Newest("a").ID
	err := s.rt.RemoveContainer(t.Context(), id)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: fake://c2 is running; stop it before it is removed")

	svc.exit("a", 0)
	dir := filepath.Dir(c.logPath)
	for _, name := range []string{"0.log", "0.log.20260102-030405.gz", "0.log.20260102-030405.gz.tmp", "10.log", "0.logbook"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	message := c.config.Mounts[1].HostPath
	require.FileExists(t, message)
	svc.calls()
	svc.before = func(_ context.Context, method, _ string) error {
		if method == "RemoveContainer" {
			return status.Error(codes.FailedPrecondition, "cannot delete running task")
		}
		return nil
	}
	err = s.rt.RemoveContainer(t.Context(), id)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: RemoveContainer: cannot delete running task; "+
		"the runtime does not list it as running: if this goes on, restart the runtime, which leaves containers running")
	svc.before = nil
	svc.calls()
	require.NoError(t, s.rt.RemoveContainer(t.Context(), id))
	assert.Equal(t, []string{"RemoveContainer c2"}, svc.calls())
	left, err := fileNames(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"0.logbook", "10.log"}, left)
	assert.NoFileExists(t, message)

	require.NoError(t, s.rt.RemoveContainer(t.Context(), id), "what is gone is removed")
	assert.Empty(t, svc.calls())
}

func TestRemoveTerminationLogRemovesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	const own = "pod/termination-log.a.0123abcd"
	for _, path := range []string{own, "pod/termination-log.b.0123abcd", "pod/termination-log.a.0123", "pod/termination-log.a.message1", "pod/0123abcd", "pod/containers/a/0123abcd"} {
		full := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o600))
		removeTerminationLog("a", "/m", []*criv1.Mount{{ContainerPath: "/m", HostPath: full}})
		if path == own {
			assert.NoFileExists(t, full)
		} else {
			assert.FileExists(t, full)
		}
	}
	removeTerminationLog("a", "/m", nil)
	removeTerminationLog("a", "", nil)
}

func TestRemoveSandbox(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a"))
	require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
	assert.Equal(t, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}, svc.calls())
	svc.before = func(_ context.Context, _, about string) error { return notFound("sandbox", about) }
	require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
}
