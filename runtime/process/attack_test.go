//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A descriptor that the server has inherited, say of /etc/shadow from a shell, must not
// reach a container, nor a command that is executed in it.
func TestInheritedDescriptors(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	fd, err := unix.Open(secret, unix.O_RDONLY, 0) // without O_CLOEXEC, as what is inherited
	require.NoError(t, err)
	defer unix.Close(fd)
	n := startNode(t, Options{})
	p := n.pod()
	look := "ls -l /proc/self/fd"
	id := p.run(shell("c", look+"; echo up; sleep 1000"))
	p.says("c", "up")
	assert.NotContains(t, p.log("c"), secret)
	resp, err := n.rs.ExecSync(context.Background(), &criv1.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", look}})
	require.NoError(t, err)
	assert.Contains(t, string(resp.GetStdout()), "/proc/")
	assert.NotContains(t, string(resp.GetStdout()), secret)
	assert.NotContains(t, supervisorFiles(t, n.state(id).Supervisor.PID), secret)
}

func supervisorFiles(t *testing.T, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all strings.Builder
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		all.WriteString(target + "\n")
	}
	return all.String()
}

// Group 0 of the host can read what belongs to root.
func TestUnknownUserIsNotInGroupRoot(t *testing.T) {
	root := &hostFacts{}
	u, _, _, err := resolveUser(&criv1.LinuxContainerSecurityContext{RunAsUser: &criv1.Int64Value{Value: 4012345678}}, root)
	require.NoError(t, err)
	assert.EqualValues(t, 65534, u.GID)
	assert.NotContains(t, u.Groups, uint32(0))
	u, _, _, err = resolveUser(&criv1.LinuxContainerSecurityContext{
		RunAsUser: &criv1.Int64Value{Value: 4012345678}, RunAsGroup: &criv1.Int64Value{Value: 0},
	}, root)
	require.NoError(t, err)
	assert.EqualValues(t, 0, u.GID, "it is requested")
}

// What a container puts in the place of its log must neither be followed nor block.
func TestLogThatIsNoFile(t *testing.T) {
	n := startNode(t, Options{})
	for name, plant := range map[string]func(path string) error{
		"fifo":    func(path string) error { return unix.Mkfifo(path, 0o666) },
		"symlink": func(path string) error { return os.Symlink(filepath.Join(n.opts.Dir, "victim"), path) },
		"socket":  func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p := n.pod()
			id, err := p.create(shell("c", "sleep 1000"))
			require.NoError(t, err)
			path := filepath.Join(p.config.GetLogDirectory(), "c.log")
			require.NoError(t, plant(path))
			_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
			require.ErrorContains(t, err, "opening its log")

			other := p.run(shell("d", "sleep 1000"))
			path = filepath.Join(p.config.GetLogDirectory(), "d.log")
			require.NoError(t, os.Rename(path, path+".1"))
			require.NoError(t, plant(path))
			_, err = n.rs.ReopenContainerLog(context.Background(), &criv1.ReopenContainerLogRequest{ContainerId: other})
			require.ErrorContains(t, err, "reopening its log")
			_, err = n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
			require.NoError(t, err)
		})
	}
	assert.NoFileExists(t, filepath.Join(n.opts.Dir, "victim"))
}

// Every local user can connect to the port of streams, and keep the connection.
func TestConnectionsWithoutStreams(t *testing.T) {
	n := startNode(t, Options{})
	address := n.server.streams.listener.Addr().String()
	for range 3 * maxStreamConns {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/exec/guessed") // it takes the place of one that waits
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	l := n.server.streams.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.LessOrEqual(t, len(l.conns), maxStreamConns)
	assert.Equal(t, 16<<10, n.server.streams.http.MaxHeaderBytes, "a megabyte of headers takes tens of megabytes when it is parsed")
}
