//go:build linux

package process

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// disk is a file system of its own whose power can be cut.
type disk struct {
	t              *testing.T
	image, mounted string
}

// newDisk makes a disk, or skips the test if that is not possible.
func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file system of its own")
	}
	dir := t.TempDir()
	d := &disk{t: t, image: filepath.Join(dir, "image"), mounted: filepath.Join(dir, "disk")}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 64<<20))
	require.NoError(t, os.Mkdir(d.mounted, 0o700))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := d.mount(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.mounted, unix.MNT_DETACH) })
	return d
}

func (d *disk) mount() ([]byte, error) {
	// The commit interval is so long that only a sync writes the journal.
	return exec.Command("mount", "-o", "loop,commit=300", d.image, d.mounted).CombinedOutput()
}

// cut ends all writes at once, and loses those that are not synced.
func (d *disk) cut() {
	d.t.Helper()
	const (
		ioctlShutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush    = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	f, err := os.Open(d.mounted)
	require.NoError(d.t, err)
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ioctlShutdown, noLogFlush); err != nil {
		d.t.Skipf("EXT4_IOC_SHUTDOWN: %v", err)
	}
}

// back is the disk after the next boot. It is a copy: while another mount namespace has the
// old one, it would be mounted again without the boot.
func (d *disk) back() {
	d.t.Helper()
	eventually(d.t, func() bool { return unix.Unmount(d.mounted, 0) == nil }, "the disk is busy")
	content, err := os.ReadFile(d.image)
	require.NoError(d.t, err)
	d.image += ".copy"
	require.NoError(d.t, os.WriteFile(d.image, content, 0o600))
	out, err := d.mount()
	require.NoError(d.t, err, "%s", out)
}

// A container that has ended must not run again after a power loss, and its exit code is
// known.
func TestPowerLoss(t *testing.T) {
	d := newDisk(t)
	dir := filepath.Join(d.mounted, "state")
	n := startNode(t, Options{Dir: dir})
	p, other, removed := n.pod(), n.pod(), n.pod()
	done := p.run(shell("c", "exit 3"))
	n.exited(done)
	gone := removed.run(shell("c", "exit 4"))
	n.exited(gone)
	_, err := n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: removed.id})
	require.NoError(t, err)
	failed, err := other.create(&criv1.ContainerConfig{
		Metadata: &criv1.ContainerMetadata{Name: "d"}, Image: &criv1.ImageSpec{Image: "host"},
		Command: []string{"/does-not-exist"},
	})
	require.NoError(t, err)
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: failed})
	require.Error(t, err)
	d.cut()
	n.stop()
	d.back()
	n.start()
	assert.Len(t, n.list(), 2)
	st := n.status(done)
	assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState())
	assert.EqualValues(t, 3, st.GetExitCode())
	assert.Equal(t, "Error", st.GetReason())
	st = n.status(failed)
	assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState())
	assert.Equal(t, "StartError", st.GetReason())
	pods, err := n.rs.ListPodSandbox(context.Background(), &criv1.ListPodSandboxRequest{})
	require.NoError(t, err)
	assert.Len(t, pods.GetItems(), 2, "what was removed stays removed")
}

func TestDirSync(t *testing.T) {
	d := &dirSync{path: t.TempDir()}
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() { assert.NoError(t, d.sync()) })
	}
	calls.Wait()
	assert.Nil(t, d.next)
	d.path = filepath.Join(d.path, "missing")
	assert.ErrorIs(t, d.sync(), os.ErrNotExist)
}

// BenchmarkPod is the cost of a pod with one container that ends, without the process
// itself.
func BenchmarkPod(b *testing.B) {
	n := startNode(b, Options{Dir: b.TempDir()})
	for b.Loop() {
		p := n.pod()
		_, err := p.create(shell("c", "true"))
		require.NoError(b, err)
		_, err = n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
		require.NoError(b, err)
	}
}
