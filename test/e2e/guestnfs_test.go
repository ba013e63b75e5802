package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// nfsServer is the NFS server of the kernel in the network of a cluster.
type nfsServer struct {
	net *NetNS
	dir string
	// path has the programs.
	path string
}

func startNFS(t *testing.T, c *Cluster) *nfsServer {
	t.Helper()
	programs := filepath.Dir(ToolBinary(t, "nfs-server", "exportfs"))
	s := &nfsServer{net: c.Net, dir: t.TempDir(), path: programs + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	s.sh(t, "modprobe nfsd; mkdir -p /var/lib/nfs/v4recovery && touch /var/lib/nfs/etab /etc/exports && "+
		"echo 10 > /proc/fs/nfsd/nfsv4leasetime && echo 10 > /proc/fs/nfsd/nfsv4gracetime && "+
		"exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=0 127.0.0.1:"+s.dir)
	var mountd *exec.Cmd
	require.NoError(t, c.Net.Do(func() error {
		mountd = s.command("exec rpc.mountd -F -N 3")
		return mountd.Start()
	}))
	t.Cleanup(func() {
		s.stop(t)
		_ = mountd.Process.Kill()
		_ = mountd.Wait()
	})
	s.sh(t, "rpc.nfsd -N 3 -V 4.2 4")
	return s
}

// command runs a script with the files of the server in this network.
func (s *nfsServer) command(script string) *exec.Cmd {
	cmd := exec.Command("unshare", "-m", "sh", "-c", "mount -t nfsd nfsd /proc/fs/nfsd; "+script)
	cmd.Env = append(os.Environ(), "PATH="+s.path)
	return cmd
}

func (s *nfsServer) sh(t *testing.T, script string) {
	t.Helper()
	require.NoError(t, s.net.Do(func() error {
		if out, err := s.command(script).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
		return nil
	}))
}

// stop stops the server: what is mounted waits for it for ever.
func (s *nfsServer) stop(t *testing.T) { s.sh(t, "rpc.nfsd 0") }

// A pod of a manifest has an NFS volume. When its server is away, other pods start and end, also the pod ends, and nothing
// of it is left.
func TestGuestNFSPods(t *testing.T) {
	inGuest(t)
	c := NewCluster(t)
	server := startNFS(t, c)
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{})}
	of := func(name, script string) *v1.Pod {
		pod := MakePod(name, Grace(1), Main(Sh("c", script)), Mounted("data",
			v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}}))
		pod.Spec.HostNetwork = true
		return pod
	}
	web := of("web", "echo stored > /data/file; while :; do date > /data/date; sleep 1; done")
	s.agent.Put(t, web)
	s.agent.Await(t, web, guestWithin, Running)
	Eventually(t, guestWithin, "the file of the pod on the server", func() error {
		content, err := os.ReadFile(filepath.Join(server.dir, "file"))
		if err == nil && string(content) != "stored\n" {
			err = fmt.Errorf("%q", content)
		}
		return err
	})
	server.stop(t)

	late := of("late", Forever)
	other := MakePod("other", Grace(1), Main(Sh("c", Forever)), Mounted("disk",
		v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	other.Spec.HostNetwork = true
	s.agent.Put(t, late, other)
	s.agent.Await(t, other, guestWithin, Running)
	s.agent.Remove(t, other)
	s.agent.AwaitGone(t, guestWithin, other)

	began := time.Now()
	s.agent.Remove(t, web, late)
	s.agent.AwaitGone(t, guestWithin, web, late)
	s.agent.AwaitNoPodDirs(t, guestWithin)
	t.Logf("the pods of the server were gone after %v", time.Since(began))
	assert.Empty(t, mountsIn(t, s.agent.Root), "nothing stays mounted")
	assert.FileExists(t, filepath.Join(server.dir, "file"), "nothing on the server is removed")
}
