package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
)

// The commands with streams work on the embedded runtime, as root and as another user, with a
// real terminal.
func TestEmbeddedStreams(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "mk")
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	manifests := filepath.Join(root, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	write(t, filepath.Join(manifests, "pod.yaml"), `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: lines
    image: host
    stdin: true
    command: [sh, -c, "trap 'exit 0' TERM; while read line; do echo got $line; done; sleep 100000 & wait"]
  - {name: shell, image: host, stdin: true, tty: true, command: [sh]}
`)
	configFile := filepath.Join(root, "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\n",
		header, root, manifests))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runKubelet(ctx, []string{"--config", configFile, "--container-runtime-endpoint=embedded",
			"--root-dir", root, "--hostname-override=node",
			"--show=none",
			"--enable-server=false"})
	}()
	command := func(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
		args = append([]string{"--root-dir", root}, args...)
		var errOut io.Writer = &screen{}
		if shown, ok := out.(*screen); ok {
			errOut = shown
		}
		return client.Run(ctx, args, client.Env{In: in, Out: out, Err: errOut})
	}
	require.Eventually(t, func() bool {
		var out bytes.Buffer
		return command(t.Context(), nil, &out, "pods") == nil && strings.Contains(out.String(), "2/2")
	}, 60*time.Second, 50*time.Millisecond)

	t.Run("exec", func(t *testing.T) {
		data := make([]byte, 10<<20)
		for i := range data {
			data[i] = byte(i * i >> 3)
		}
		var out bytes.Buffer
		require.NoError(t, command(t.Context(), bytes.NewReader(data), &out, "exec", "-i", "web", "-c",
			"lines", "--", "cat"))
		assert.Truef(t, bytes.Equal(data, out.Bytes()), "%d bytes", out.Len())
		code := client.ExitCode(0)
		require.ErrorAs(t, command(t.Context(), nil, io.Discard, "exec", "web", "-c", "lines", "--", "sh",
			"-c", "exit 42"), &code)
		assert.Equal(t, client.ExitCode(42), code)
	})
	t.Run("terminal", func(t *testing.T) {
		master, slave := openTerminal(t)
		defer master.Close()
		defer slave.Close()
		resize := func(cols, rows uint16) {
			require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ,
				&unix.Winsize{Col: cols, Row: rows}))
		}
		resize(111, 33)
		before, err := term.GetState(int(slave.Fd()))
		require.NoError(t, err)
		shown := &screen{}
		ended := make(chan error, 1)
		go func() { ended <- command(t.Context(), slave, shown, "exec", "-it", "web", "-c", "lines", "--", "sh") }()
		enter := func(text string) { _, err := io.WriteString(master, text); require.NoError(t, err) }
		enter("echo $((6*7))\r")
		shown.shows(t, "42")
		raw, err := term.GetState(int(slave.Fd()))
		require.NoError(t, err)
		assert.NotEqual(t, before, raw)
		size := func(want string) { // it is sent while the shell begins already
			t.Helper()
			require.Eventually(t, func() bool {
				enter("stty size\r")
				time.Sleep(50 * time.Millisecond)
				return strings.Contains(shown.String(), want)
			}, 30*time.Second, 50*time.Millisecond, "%s", want)
		}
		size("33 111")
		resize(77, 22)
		require.NoError(t, unix.Kill(os.Getpid(), syscall.SIGWINCH)) // which the shell of a user sends
		size("22 77")
		enter("exit 5\r")
		code := client.ExitCode(0)
		require.ErrorAs(t, <-ended, &code)
		assert.Equal(t, client.ExitCode(5), code)
		after, err := term.GetState(int(slave.Fd()))
		require.NoError(t, err)
		assert.Equal(t, before, after)
	})
	t.Run("attach", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		in, w := io.Pipe()
		shown := &screen{}
		ended := make(chan error, 1)
		go func() { ended <- command(ctx, in, shown, "attach", "-i", "web", "-c", "lines") }()
		_, err := io.WriteString(w, "one\ntwo\n")
		require.NoError(t, err)
		shown.shows(t, "got one\ngot two\n")
		leave() // the container goes on
		require.Error(t, <-ended)
		_ = w.Close()
		shown = &screen{}
		require.NoError(t, command(t.Context(), strings.NewReader("echo $((6*7))\nexit\n"), shown, "attach", "-it",
			"web", "-c", "shell"))
		assert.Contains(t, shown.String(), "42")
		var out bytes.Buffer
		require.NoError(t, command(t.Context(), nil, &out, "exec", "web", "-c", "lines", "--", "echo", "still here"))
		assert.Equal(t, "still here\n", out.String())
	})
	t.Run("port-forward", func(t *testing.T) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
		ctx, leave := context.WithCancel(t.Context())
		shown := &screen{}
		ended := make(chan error, 1)
		port := l.Addr().(*net.TCPAddr).Port
		go func() {
			ended <- command(ctx, nil, shown, "port-forward", "--address=127.0.0.1", "web", fmt.Sprintf(":%d", port))
		}()
		shown.shows(t, "Forwarding from 127.0.0.1:")
		local := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(shown.String())[1]
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+local)
		require.NoError(t, err)
		data := bytes.Repeat([]byte("0123456789abcdef"), 10<<16)
		var sent sync.WaitGroup
		sent.Go(func() { _, _ = conn.Write(data); _ = conn.(*net.TCPConn).CloseWrite() })
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Truef(t, bytes.Equal(data, got), "%d bytes", len(got))
		sent.Wait()
		leave()
		require.NoError(t, <-ended)
	})
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), "content")
		require.NoError(t, command(t.Context(), nil, io.Discard, "cp", "-c", "lines", filepath.Join(dir, "a"),
			"web:"+filepath.Join(dir, "b")))
		require.NoError(t, command(t.Context(), nil, io.Discard, "cp", "-c", "lines", "web:"+filepath.Join(dir, "b"),
			filepath.Join(dir, "c")))
		got, err := os.ReadFile(filepath.Join(dir, "c"))
		require.NoError(t, err)
		assert.Equal(t, "content", string(got))
	})

	// The agent ends in a session, and the session with it.
	shown := &screen{}
	ended := make(chan error, 1)
	go func() {
		ended <- command(t.Context(), nil, shown, "exec", "web", "-c", "lines", "--", "sh", "-c",
			"echo begun; sleep 1000")
	}()
	shown.shows(t, "begun")
	stop()
	require.NoError(t, <-done)
	<-ended
	require.NoError(t, client.Run(t.Context(), []string{"stop", "--root-dir", root}, client.Env{Out: io.Discard,
		Err: io.Discard, StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, io.Discard)
		}}))
}

// screen collects what a command shows.
type screen struct{ testenv.Output }

func (s *screen) String() string { return strings.ReplaceAll(s.Output.String(), "\r\n", "\n") }

func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(s.String(),
		text); time.Sleep(10 * time.Millisecond) {
		require.Truef(t, time.Now().Before(end), "after 30 s it does not show %q, but %q", text, s.String())
	}
}

// openTerminal returns the two ends of a terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("this user may not open terminals")
	}
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, slave
}
