//go:build linux

package nfs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/nfs"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// within is how long the test waits in a guest, whose processors are emulated.
const within = 2 * time.Minute

// kernelServer is the NFS server of the kernel. It exports a directory to this machine.
type kernelServer struct {
	t        *testing.T
	programs string
	dir      string
}

func startKernelServer(t *testing.T) *kernelServer {
	t.Helper()
	programs, err := exec.Command("bash", "../../../test/tools/build", "nfs-server").Output()
	require.NoError(t, err)
	s := &kernelServer{t: t, programs: strings.TrimSpace(string(programs)), dir: t.TempDir()}
	s.sh("ip link set lo up && modprobe nfsd && mkdir -p /var/lib/nfs/v4recovery && touch /var/lib/nfs/etab /etc/exports && " +
		"{ grep -q /proc/fs/nfsd /proc/mounts || mount -t nfsd nfsd /proc/fs/nfsd; } && " +
		"echo 10 > /proc/fs/nfsd/nfsv4leasetime && echo 10 > /proc/fs/nfsd/nfsv4gracetime")
	s.sh("exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=0 127.0.0.1:" + s.dir)
	mountd := exec.CommandContext(t.Context(), filepath.Join(s.programs, "rpc.mountd"), "-F", "-N", "3")
	require.NoError(t, mountd.Start())
	t.Cleanup(func() { _ = mountd.Wait() })
	s.start()
	t.Cleanup(func() { s.stop(); s.sh("exportfs -ua") })
	return s
}

func (s *kernelServer) sh(script string) string {
	s.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+s.programs+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", script, out)
	return strings.TrimSpace(string(out))
}

func (s *kernelServer) start() { s.sh("rpc.nfsd -N 3 -V 4.2 4") }

// stop stops the server. A hard mount waits for it for ever.
func (s *kernelServer) stop() { s.sh("rpc.nfsd 0") }

// The server of the kernel is stopped while pods have its volumes: other pods go on, the pods of the server end, and
// what is stored stays.
func TestGuestNFS(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
	s, pods := startKernelServer(t), t.TempDir()
	start := func() (*volume.Reconciler, *nfs.Plugin) {
		p, err := nfs.New(nfs.Options{UnmountTimeout: 5 * time.Second})
		require.NoError(t, err)
		m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p}})
		require.NoError(t, err)
		return m, p
	}
	m, p := start()
	dir := func(name string) string { return filepath.Join(pods, name) }
	ofServer := func(name string) *v1.Pod {
		of := pod(name, inline("127.0.0.1", false))
		of.Spec.Volumes[0].NFS.Path = "/"
		return of
	}
	other := func(name string) *v1.Pod {
		return pod(name, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	setUp := func(ctx context.Context, pod *v1.Pod) (string, error) {
		ready, err := m.SetUp(ctx, pod, dir(pod.Name))
		return ready["data"].HostPath, err
	}
	remove := func(name string) {
		t.Helper()
		began := time.Now()
		require.NoError(t, m.Remove(t.Context(), ref(name), dir(name)))
		assert.NoDirExists(t, dir(name))
		t.Logf("pod %s was removed in %v", name, time.Since(began))
	}

	web, err := setUp(t.Context(), ofServer("web"))
	require.NoError(t, err)
	db, err := setUp(t.Context(), ofServer("db"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(web, "file"), []byte("stored"), 0o600))
	assert.FileExists(t, filepath.Join(s.dir, "file"))
	assert.FileExists(t, filepath.Join(db, "file"))
	_, err = p.Stats(t.Context(), volume.PlaceOf(dir("web"), nfs.Name, "data"))
	require.NoError(t, err)

	sub, err := m.SubPath(t.Context(), kruntime.SubPath{Pod: ref("web"), Container: "main", VolumeName: "data", Path: "sub",
		Volume: kruntime.Volume{HostPath: web}, Dir: dir("web")})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(sub, "file"), nil, 0o600))

	s.stop()
	writer := exec.Command("sh", "-c", "echo lost > "+filepath.Join(web, "lost"))
	require.NoError(t, writer.Start())
	written := make(chan error, 1)
	go func() { written <- writer.Wait() }()
	late, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := setUp(late, ofServer("late"))
		failed <- err
	}()
	began := time.Now()
	_, err = setUp(t.Context(), other("other"))
	require.NoError(t, err)
	remove("other")
	assert.Less(t, time.Since(began), 10*time.Second, "another pod does not wait")

	_, err = p.Stats(t.Context(), volume.PlaceOf(dir("web"), nfs.Name, "data"))
	require.ErrorContains(t, err, "the NFS server does not answer")
	_, err = p.Stats(t.Context(), volume.PlaceOf(dir("web"), nfs.Name, "data"))
	require.ErrorContains(t, err, "the NFS server does not answer")
	short, done := context.WithTimeout(t.Context(), 3*time.Second)
	defer done()
	_, err = m.SubPath(short, kruntime.SubPath{Pod: ref("web"), Container: "main", VolumeName: "data", Path: "new",
		Volume: kruntime.Volume{HostPath: web}, Dir: dir("web")})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// A pod whose mount hangs ends, and so does one whose volume is mounted.
	gone := errors.New("the pod is deleted")
	cancel(gone)
	require.ErrorIs(t, <-failed, gone)
	remove("late")
	remove("web")
	select {
	case err := <-written:
		t.Logf("the writer has ended: %v", err)
	case <-time.After(within):
		t.Error("the writer still hangs")
	}

	// The agent starts again while the server is away: the volume of the other pod is ready as it is.
	m, p = start()
	began = time.Now()
	_, err = setUp(t.Context(), ofServer("db"))
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 10*time.Second, "nothing asks the server")

	s.start()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		content, err := os.ReadFile(filepath.Join(db, "file"))
		assert.NoError(c, err)
		assert.Equal(c, "stored", string(content))
	}, within, time.Second)
	remove("db")
	_, err = setUp(t.Context(), ofServer("web"))
	require.NoError(t, err)
	remove("web")
	assert.FileExists(t, filepath.Join(s.dir, "file"), "nothing on the server is removed")
	assert.Empty(t, s.sh("grep "+pods+" /proc/mounts || true"), "nothing stays mounted")
	require.Eventually(t, p.Idle, within, time.Second)
}
