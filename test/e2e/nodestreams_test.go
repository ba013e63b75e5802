package e2e

import (
	"bytes"
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// kubectl's commands with streams work through the API server and the port of the node.
func TestStreamsOfKubectl(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns := s.plane.Namespace(t, "streams")
	image := s.Registry.Image("busybox:1")
	k := &kubectlStreams{s.plane, s.Net, ns}
	k.test(t, image, "nc", "/tmp")
	t.Run("debug", func(t *testing.T) {
		// In a terminal: without one, and without stdinOnce, containerd sends no more output when
		// the input has ended.
		out := InTerminal(t, s.Net, s.plane.KubectlCommand(t, nil, "debug", "-n", ns, "web", "-it",
			"-q", "--image", image,
			"--target", "web", "--container", "debugger", "--profile", "general", "--", "sh"), 80, 24,
			"echo answer $((6*7)) $(pidof nc >/dev/null && echo found); exit\n")
		assert.Contains(t, out, "answer 42 found", "it sees the processes of its target")
	})
	k.testTerminating(t)
	// The node has declared that it serves WebSocket clients itself.
	metrics := s.plane.Kubectl(t, "get", "--raw", "/metrics")
	for _, kind := range []string{"exec", "attach", "portforward"} {
		assert.Regexp(t, `websocket_streaming_requests_total\{proxy_type="proxied_to_kubelet",subresource="`+kind+
			`"\} [1-9]`, metrics)
	}
	assert.NotContains(t, metrics, `proxy_type="translated_at_apiserver"`)
}

// The same commands work on a node without a container runtime, whose containers are processes.
func TestStreamsOfKubectlToProcesses(t *testing.T) {
	t.Parallel()
	net, err := NewNetNS()
	require.NoError(t, err)
	t.Cleanup(func() { _ = net.Close() })
	plane := NewControlPlane(t, net)
	agent := NewProcessAgent(t, AgentOptions{Net: net, Kubeconfig: plane.NodeKubeconfig(t, NodeName)})
	agent.Start(t)
	Eventually(t, within, "node ready", func() error {
		node, err := plane.Client.CoreV1().Nodes().Get(t.Context(), NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return nodeReady(node)
	})
	k := &kubectlStreams{plane, net, plane.Namespace(t, "processes")}
	k.test(t, "host", "busybox nc", t.TempDir())
	web := agent.Runtime.Newest(t, "web", "web").Id
	k.testTerminating(t)
	Eventually(t, within, "the processes have ended", func() error {
		if left := ProcessesOf(web); len(left) > 0 {
			return fmt.Errorf("%v go on", left)
		}
		return plane.NoPod(k.namespace, "web")
	})
}

// kubectlStreams tests kubectl's commands with streams.
type kubectlStreams struct {
	plane     *ControlPlane
	net       *NetNS
	namespace string
}

// test runs the commands with 10 MB in both directions, byte by byte, with exit codes, and with a
// terminal. nc is the command in containers, and files in them are in dir.
func (s *kubectlStreams) test(t *testing.T, image, nc, dir string) {
	ns := s.namespace
	run := func(name string, args ...string) {
		t.Helper()
		s.plane.Kubectl(t,
			append([]string{"run", name, "-n", ns, "--image", image, "--annotations", process.MountsAnnotation +
				"=env"}, args...)...)
	}
	run("web", "--command", "--", "/bin/sh", "-c", "echo hello; "+nc+" -ll -p 8080 -e cat & trap '' TERM; while :; "+
		"do sleep 1; done")
	run("shell", "--stdin", "--tty", "--attach=false", "--command", "--", "/bin/sh")
	// ends with its input, and so does attach
	run("lines", "--stdin", "--attach=false", "--command", "--", "/bin/sh", "-c",
		"while read line; do echo got $line; done")
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod/web", "pod/shell", "pod/lines", "--timeout=180s")
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data)
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o600))

	t.Run("logs", func(t *testing.T) {
		assert.Equal(t, "hello\n", s.plane.Kubectl(t, "logs", "-n", ns, "web"))
	})
	t.Run("exec", func(t *testing.T) {
		out, err := s.plane.TryKubectl(t, string(data), "exec", "-n", ns, "-i", "web", "--", "cat")
		require.NoError(t, err)
		assert.Truef(t, out == string(data), "%d bytes have returned", len(out))
		out, err = s.plane.TryKubectl(t, string(data), "exec", "-n", ns, "-i", "web", "--", "sh", "-c",
			"wc -c; echo problem >&2; exit 42")
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
		out, err = Piped(s.net, s.plane.KubectlCommand(t, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"}, "exec",
			"-n", ns, "-i", "web", "--", "cat"), string(data))
		require.NoError(t, err)
		assert.Truef(t, out == string(data), "%d bytes have returned", len(out))
	})
	if os.Getenv(roundsVariable) != "" {
		t.Run("inputs", func(t *testing.T) {
			testInputsOf(t, s.net, func(ctx context.Context, flags ...string) *exec.Cmd {
				cmd := s.plane.KubectlCommand(t, nil, append([]string{"exec", "-n", ns}, flags...)...)
				limited := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
				limited.Env = cmd.Env
				return limited
			}, "web")
		})
	}
	t.Run("terminal", func(t *testing.T) {
		out := InTerminal(t, s.net, s.plane.KubectlCommand(t, nil, "exec", "-n", ns, "-it", "web", "--", "sh"), 111, 33,
			"while [ \"$(stty size)\" != '33 111' ]; do sleep 0.1; done; echo $((6*7)) $(stty size); exit 3\n")
		assert.Contains(t, out, "42 33 111")
		assert.Contains(t, out, "command terminated with exit code 3")
		out = InTerminal(t, s.net, s.plane.KubectlCommand(t, nil, "exec", "-n", ns, "-it", "web", "--", "sh"), 80, 24,
			"while [ \"$(stty size)\" != '50 120' ]; do echo small$((6*7)); sleep 0.1; done; echo lar''ge; exit\n",
			Resize{After: "small42", Cols: 120, Rows: 50})
		assert.Contains(t, out, "large")
	})
	t.Run("attach", func(t *testing.T) {
		out, err := s.plane.TryKubectl(t, "one\ntwo\n", "attach", "-n", ns, "-i", "lines")
		require.NoError(t, err)
		assert.Contains(t, out, "got one\ngot two\n")
		out = InTerminal(t, s.net, s.plane.KubectlCommand(t, nil, "attach", "-n", ns, "-it", "shell"), 80, 24,
			"echo $((6*7))\nexit\n")
		assert.Contains(t, out, "42")
	})
	t.Run("cp", func(t *testing.T) {
		s.plane.Kubectl(t, "cp", "-n", ns, file, "web:"+dir+"/data")
		back := filepath.Join(t.TempDir(), "back")
		s.plane.Kubectl(t, "cp", "-n", ns, "web:"+dir+"/data", back)
		got, err := os.ReadFile(back)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got))
	})
	t.Run("port-forward", func(t *testing.T) {
		for _, env := range []string{"KUBECTL_PORT_FORWARD_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"} {
			port, stop := Forwarding(t, s.net, s.plane.KubectlCommand(t, []string{env}, "port-forward", "-n", ns,
				"pod/web", ":8080"))
			var conn net.Conn
			require.NoError(t, s.net.Do(func() (err error) {
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
}

// testTerminating runs a command in a pod that is terminating, and deletes the pods.
func (s *kubectlStreams) testTerminating(t *testing.T) {
	ns := s.namespace
	t.Run("terminating", func(t *testing.T) {
		s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=600", "--wait=false")
		out, err := s.plane.TryKubectl(t, "", "exec", "-n", ns, "web", "--", "echo", "still", "here")
		require.NoError(t, err)
		assert.Equal(t, "still here\n", out)
	})
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "--all", "--grace-period=1")
}
