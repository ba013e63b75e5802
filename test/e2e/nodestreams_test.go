package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// kubectl's commands with streams work through the API server and the port of the node: with 10
// MB in both directions, byte by byte, with exit codes, and with a terminal.
func TestStreamsOfKubectl(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns := s.plane.Namespace(t, "streams")
	image := s.Registry.Image("busybox:1")
	s.plane.Kubectl(t, "run", "web", "-n", ns, "--image", image, "--command", "--", "/bin/sh", "-c",
		"nc -ll -p 8080 -e cat & trap '' TERM; while :; do sleep 1; done")
	s.plane.Kubectl(t, "run", "shell", "-n", ns, "--image", image, "--stdin", "--tty", "--attach=false", "--command", "--", "/bin/sh")
	s.plane.Kubectl(t, "run", "lines", "-n", ns, "--image", image, "--stdin", "--attach=false", "--command", "--", "/bin/sh", "-c",
		"while read line; do echo got $line; done") // ends with its input, and so does attach
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod/web", "pod/shell", "pod/lines", "--timeout=60s")
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data)
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o600))

	t.Run("exec", func(t *testing.T) {
		out, err := s.plane.TryKubectl(t, string(data), "exec", "-n", ns, "-i", "web", "--", "cat")
		require.NoError(t, err)
		assert.Truef(t, out == string(data), "%d bytes have returned", len(out))
		out, err = s.plane.TryKubectl(t, string(data), "exec", "-n", ns, "-i", "web", "--", "sh", "-c", "wc -c; echo problem >&2; exit 42")
		assert.Equal(t, fmt.Sprintln(len(data)), out)
		require.ErrorContains(t, err, "problem")
		exit := (*exec.ExitError)(nil)
		require.True(t, errors.As(err, &exit))
		assert.Equal(t, 42, exit.ExitCode())
		_, err = s.plane.TryKubectl(t, "", "exec", "-n", ns, "web", "--", "no-such-command")
		require.Error(t, err)
		_, err = s.plane.TryKubectl(t, "", "exec", "-n", ns, "web", "-c", "none", "--", "true")
		require.Error(t, err)
		// Older clients use SPDY.
		out, err = Piped(s.Net, s.plane.KubectlCommand(t, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"}, "exec", "-n", ns, "-i", "web", "--", "cat"), string(data))
		require.NoError(t, err)
		assert.Truef(t, out == string(data), "%d bytes have returned", len(out))
	})
	t.Run("terminal", func(t *testing.T) {
		out := InTerminal(t, s.Net, s.plane.KubectlCommand(t, nil, "exec", "-n", ns, "-it", "web", "--", "sh"), 111, 33, "sleep 1; echo $((6*7)) $(stty size); exit 3\n")
		assert.Contains(t, out, "42 33 111")
		assert.Contains(t, out, "command terminated with exit code 3")
	})
	t.Run("attach", func(t *testing.T) {
		out, err := s.plane.TryKubectl(t, "one\ntwo\n", "attach", "-n", ns, "-i", "lines")
		require.NoError(t, err)
		assert.Contains(t, out, "got one\ngot two\n")
		out = InTerminal(t, s.Net, s.plane.KubectlCommand(t, nil, "attach", "-n", ns, "-it", "shell"), 80, 24, "echo $((6*7))\nexit\n")
		assert.Contains(t, out, "42")
	})
	t.Run("cp", func(t *testing.T) {
		s.plane.Kubectl(t, "cp", "-n", ns, file, "web:/tmp/data")
		back := filepath.Join(t.TempDir(), "back")
		s.plane.Kubectl(t, "cp", "-n", ns, "web:/tmp/data", back)
		got, err := os.ReadFile(back)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got))
	})
	t.Run("port-forward", func(t *testing.T) {
		for _, env := range []string{"KUBECTL_PORT_FORWARD_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"} {
			port, stop := Forwarding(t, s.Net, s.plane.KubectlCommand(t, []string{env}, "port-forward", "-n", ns, "pod/web", ":8080"))
			var conn net.Conn
			require.NoError(t, s.Net.Do(func() (err error) {
				conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
				return err
			}))
			go func() { _, _ = conn.Write(data) }()
			got := make([]byte, len(data))
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(60*time.Second)))
			_, err := io.ReadFull(conn, got)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(data, got), env)
			require.NoError(t, conn.Close())
			stop()
		}
	})
	t.Run("debug", func(t *testing.T) {
		// In a terminal: without one, and without stdinOnce, containerd sends no more output when
		// the input has ended.
		out := InTerminal(t, s.Net, s.plane.KubectlCommand(t, nil, "debug", "-n", ns, "web", "-it", "-q", "--image", image,
			"--target", "web", "--container", "debugger", "--profile", "general", "--", "sh"), 80, 24,
			"echo answer $((6*7)) $(pidof nc >/dev/null && echo found); exit\n")
		assert.Contains(t, out, "answer 42 found", "it sees the processes of its target")
	})
	t.Run("terminating", func(t *testing.T) {
		s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=600", "--wait=false")
		out, err := s.plane.TryKubectl(t, "", "exec", "-n", ns, "web", "--", "echo", "still", "here")
		require.NoError(t, err)
		assert.Equal(t, "still here\n", out)
	})
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "--all", "--grace-period=1")
}
