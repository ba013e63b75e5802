//go:build linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// smallDisks are file systems of 4 MiB, by name. Each function returns the mount point.
var smallDisks = map[string]func(t *testing.T) string{
	"tmpfs": func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
			t.Skipf("mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	},
	"ext4": func(t *testing.T) string {
		t.Helper()
		image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
		require.NoError(t, os.WriteFile(image, nil, 0o600))
		require.NoError(t, os.Truncate(image, 4<<20))
		if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-N", "1024", "-O",
			"^has_journal", image).CombinedOutput(); err != nil {
			t.Skipf("mkfs.ext4: %v: %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			t.Skipf("mount: %v: %s", err, out)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	},
}

// fill takes all space that is left, and returns a function that gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			block = block[:len(block)/2]
		}
	}
	require.NoError(t, errors.Join(f.Sync(), f.Close()))
	return func() { require.NoError(t, os.Remove(path)) }
}

// The end of a container, the stop and the removal of its sandbox need no space, at whatever time
// the disk becomes full.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file system of its own")
	}
	t.Parallel()
	for name, disk := range smallDisks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := disk(t)
			n := startNode(t, Options{Dir: filepath.Join(at, "process")})
			_, err := n.is.PullImage(t.Context(), &criv1.PullImageRequest{Image: &criv1.ImageSpec{Image: "host"}})
			require.NoError(t, err)

			created, ends, stopped, killed, removed := n.pod(), n.pod(), n.pod(), n.pod(), n.pod()
			waiting, err := created.create(shell("c", "exit 4"))
			require.NoError(t, err)
			go4 := filepath.Join(t.TempDir(), "go")
			ended := ends.run(shell("c", "while [ ! -e "+go4+" ]; do sleep 0.01; done; exit 4"))
			polite := stopped.run(shell("c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done"))
			stopped.says("c", "up")
			lost := killed.run(shell("c", "exec sleep 1000"))
			removed.run(shell("c", "exec sleep 1000"))

			free := fill(t, at)
			require.NoError(t, os.WriteFile(go4, nil, 0o600))
			assert.EqualValues(t, 4, n.exited(ended).GetExitCode())
			n.kill(polite, 100_000)
			assert.EqualValues(t, 5, n.status(polite).GetExitCode())
			require.NoError(t, n.state(lost).Supervisor.Kill(unix.SIGKILL))
			assert.EqualValues(t, unknownExitCode, n.exited(lost).GetExitCode())
			for range 2 {
				for _, p := range []*pod{created, ends, stopped, killed} {
					_, err := n.rs.StopPodSandbox(t.Context(), &criv1.StopPodSandboxRequest{PodSandboxId: p.id})
					assert.NoError(t, err)
				}
			}
			_, err = n.rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: removed.id})
			assert.NoError(t, err)
			_, err = n.is.RemoveImage(t.Context(), &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: "host"}})
			assert.NoError(t, err)
			fill(t, at) // what the removal has freed

			// Another server finds all of them, and no container runs again.
			n.restart()
			assert.EqualValues(t, 4, n.status(ended).GetExitCode())
			assert.EqualValues(t, 5, n.status(polite).GetExitCode())
			assert.EqualValues(t, unknownExitCode, n.status(lost).GetExitCode())
			assert.Equal(t, criv1.ContainerState_CONTAINER_CREATED, n.status(waiting).GetState())
			for _, p := range []*pod{created, ends, stopped, killed} {
				_, err := n.rs.StopPodSandbox(t.Context(), &criv1.StopPodSandboxRequest{PodSandboxId: p.id})
				assert.NoError(t, err)
				_, err = n.rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
				assert.NoError(t, err)
			}
			free()
			n.pod().run(shell("c", "exit 0"))
		})
	}
}
