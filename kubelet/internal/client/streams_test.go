package client

import (
	"archive/tar"
	gobytes "bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	streamserver "github.com/kubeletkit/kubeletkit/server/streams"
)

// ExecStream implements [runtime.Streamer]: programs of this machine run, what else there is
// comes from the test.
func (n *node) ExecStream(ctx context.Context, _ runtime.ContainerID, cmd []string, s runtime.Streams) (int32, error) {
	if n.tar != nil && cmd[0] == "tar" {
		return 0, n.tar(ctx, s.Stdout)
	}
	if !slices.Contains([]string{"sh", "tar", "test", "cat"}, cmd[0]) {
		r, err := n.exec(cmd)
		if err == nil {
			_, err = s.Stdout.Write(r.Output)
		}
		return r.ExitCode, err
	}
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Stdin, c.Stdout, c.Stderr = s.Stdin, s.Stdout, s.Stderr
	err := c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return int32(exit.ExitCode()), nil
	}
	return 0, err
}

// AttachStream implements [runtime.Streamer].
func (n *node) AttachStream(_ context.Context, _ runtime.ContainerID, s runtime.Streams) error {
	fmt.Fprintf(s.Stdout, "attached tty=%t ", s.TTY)
	if s.Stdin == nil {
		return nil
	}
	_, err := io.Copy(s.Stdout, s.Stdin)
	return err
}

// ForwardPort implements [runtime.Streamer]: each port echoes.
func (n *node) ForwardPort(_ context.Context, _ string, port int32, conn io.ReadWriteCloser) error {
	if port != 80 {
		return fmt.Errorf("connection to port %d refused", port)
	}
	_, err := io.Copy(conn, conn)
	return err
}

// serveStreams serves a node with streams and returns its directory.
func serveStreams(t *testing.T) (root string) {
	return serveNode(t,
		&node{exec: func([]string) (runtime.ExecResult,
			error) {
			return runtime.ExecResult{}, errors.New("no such program")
		}})
}

func serveNode(t *testing.T, n *node) (root string) {
	return serving(t, control.Handler(n, control.NewStop(),
		server.Options{Streams: streamserver.New(n, n, streamserver.Options{})}))
}

// serving serves the socket of an agent until the test has ended, and returns the root directory of the agent.
func serving(t *testing.T, h http.Handler) (root string) {
	root = t.TempDir()
	l, err := server.ListenUnix(t.Context(), filepath.Join(root, config.SocketName))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, h) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-served) })
	return root
}

// with runs a command with an input.
func with(t *testing.T, in io.Reader, out, errOut io.Writer, args ...string) error {
	return Run(t.Context(), args, Env{In: in, Out: out, Err: errOut})
}

func TestExecWithInput(t *testing.T) {
	root := serveStreams(t)
	data := gobytes.Repeat([]byte("0123456789abcdef"), 10<<16)
	var out, errOut gobytes.Buffer
	require.NoError(t, with(t, gobytes.NewReader(data), &out, &errOut, "exec", "--root-dir", root, "-i", "web",
		"-c", "a", "--", "cat"))
	assert.Truef(t, gobytes.Equal(data, out.Bytes()), "%d bytes", out.Len())

	out.Reset()
	code := ExitCode(0)
	require.ErrorAs(t, with(t, strings.NewReader("12345"), &out, &errOut, "exec", "--root-dir", root, "-i", "web", "-c",
		"a", "--", "sh", "-c", "wc -c; echo problem >&2; exit 42"), &code)
	assert.Equal(t, ExitCode(42), code)
	assert.Equal(t, "5\n", out.String())
	assert.Equal(t, "problem\n", errOut.String())

	// Without -i there is no input.
	out.Reset()
	require.NoError(t, with(t, strings.NewReader("12345"), &out, &errOut, "exec", "--root-dir", root, "web",
		"-c", "a", "--", "cat"))
	assert.Empty(t, out.String())

	errOut.Reset()
	require.NoError(t, with(t, strings.NewReader(""), &out, &errOut, "exec", "--root-dir", root, "-it", "web", "-c",
		"a", "--", "sh", "-c", "true"))
	assert.Contains(t, errOut.String(), "Unable to use a TTY")
}

func TestAttachCommand(t *testing.T) {
	root := serveStreams(t)
	var out, errOut gobytes.Buffer
	require.NoError(t, with(t, strings.NewReader("hello"), &out, &errOut, "attach", "--root-dir", root,
		"-i", "web", "-c", "a"))
	assert.Equal(t, "attached tty=false hello", out.String())
	assert.Contains(t, errOut.String(), "Container a has no input")
	require.ErrorContains(t, with(t, nil, &out, &errOut, "attach", "--root-dir", root, "web", "-c", "b"),
		`container not found ("b")`)
	require.ErrorContains(t, with(t, nil, &out, &errOut, "attach", "--root-dir", root), "want the name of one pod")
}

// The error of one connection is printed, and the next one is forwarded. A local port that is taken on one address of
// localhost is named.
func TestPortForwardErrors(t *testing.T) {
	root := serveStreams(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp6", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		require.NoError(t, l.Close())
	}
	port := taken.Addr().(*net.TCPAddr).Port
	var text gobytes.Buffer
	shown := &sharedWriter{w: &text}
	shows := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			shown.mu.Lock()
			defer shown.mu.Unlock()
			return strings.Contains(text.String(), want)
		}, 30*time.Second, 10*time.Millisecond, want)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, []string{"port-forward", "--root-dir", root, "web", fmt.Sprintf("%d:81", port), ":80"},
			Env{Out: shown, Err: shown})
	}()
	shows(fmt.Sprintf("Unable to listen on 127.0.0.1:%d: the address is in use by another program.", port))
	shows("-> 80\n")
	shown.mu.Lock()
	good := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 80`).FindSubmatch(text.Bytes())
	shown.mu.Unlock()
	require.NotNil(t, good)
	send := func(address string) string {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "hello") // it may be closed already
		_ = conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		return string(got)
	}
	for range 3 {
		assert.Empty(t, send(fmt.Sprintf("[::1]:%d", port)))
		shows("An error occurred forwarding to port 81: ")
		shows("connection to port 81 refused\n")
		assert.Equal(t, "hello", send("127.0.0.1:"+string(good[1])))
	}
	cancel()
	require.NoError(t, <-ended)
	assert.NotContains(t, text.String(), "lost connection")
}

func TestPortForwardCommand(t *testing.T) {
	root := serveStreams(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, []string{"port-forward", "--root-dir", root, "--address", "127.0.0.1", "web", ":80"},
			Env{Out: w, Err: io.Discard})
		_ = w.Close()
		ended <- err
	}()
	line := make([]byte, 200)
	n, err := r.Read(line)
	require.NoError(t, err)
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 80`).FindSubmatch(line[:n])
	require.NotNil(t, port, string(line[:n]))
	var rest sync.WaitGroup
	rest.Go(func() { _, _ = io.Copy(io.Discard, r) })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+string(port[1]))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	require.NoError(t, conn.Close())
	cancel()
	require.NoError(t, <-ended)
	rest.Wait()

	var out, errOut gobytes.Buffer
	require.ErrorContains(t, with(t, nil, &out, &errOut, "port-forward", "--root-dir", root, "web", "http"),
		`has no port "http"`)
	require.ErrorContains(t, with(t, nil, &out, &errOut, "port-forward", "--root-dir", root, "web"),
		"want the name of one pod and its ports")
}

func TestCopy(t *testing.T) {
	root := serveStreams(t)
	cp := func(from, to string) (string, error) {
		var out, errOut gobytes.Buffer
		err := with(t, nil, &out, &errOut, "cp", "--root-dir", root, "-c", "a", from, to)
		return errOut.String(), err
	}
	here, there := t.TempDir(), t.TempDir() // there is in the container
	big := gobytes.Repeat([]byte("0123456789abcdef"), 10<<16)
	writeFile(t, filepath.Join(here, "file"), string(big))
	require.NoError(t, os.MkdirAll(filepath.Join(here, "dir", "sub"), 0o755))
	writeFile(t, filepath.Join(here, "dir", "sub", "-a b"), "content")
	require.NoError(t, os.Symlink("sub", filepath.Join(here, "dir", "link")))
	same := func(path, want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Truef(t, want == string(got), "%s has %d bytes", path, len(got))
	}

	_, err := cp(filepath.Join(here, "file"), "web:"+there+"/new")
	require.NoError(t, err)
	same(filepath.Join(there, "new"), string(big))
	_, err = cp(filepath.Join(here, "file"), "default/web:"+there) // into a directory
	require.NoError(t, err)
	same(filepath.Join(there, "file"), string(big))
	_, err = cp(filepath.Join(here, "dir"), "web:"+there+"/copied")
	require.NoError(t, err)
	same(filepath.Join(there, "copied", "sub", "-a b"), "content")
	same(filepath.Join(there, "copied", "link", "-a b"), "content")

	_, err = cp("web:"+there+"/new", filepath.Join(here, "back"))
	require.NoError(t, err)
	same(filepath.Join(here, "back"), string(big))
	warned, err := cp("web:"+there+"/copied", here) // into a directory
	require.NoError(t, err)
	same(filepath.Join(here, "copied", "sub", "-a b"), "content")
	assert.Contains(t, warned, "skipping link")
	assert.NoFileExists(t, filepath.Join(here, "copied", "link"))

	for _, args := range [][2]string{{"a", "b"}, {"web:/a", "web:/b"}, {"web:", "b"}, {"/web:a", "b"}, {"a/b/c:d", "b"},
		{"a", ":b"}} {
		_, err := cp(args[0], args[1])
		require.ErrorContains(t, err, "see minikubelet cp --help", args)
	}
	_, err = cp("web:/does/not/exist", filepath.Join(here, "x"))
	require.ErrorContains(t, err, "tar in container \"a\" ended with exit code")
	assert.NotContains(t, err.Error(), "needs the program tar", "it is there")
	_, err = cp(filepath.Join(here, "nothing"), "web:/tmp/x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// An archive of a container cannot have anything written outside of the destination.
func TestArchiveEscapes(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"absolute":              {{Name: "/etc/passwd"}},
		"above":                 {{Name: "data/../../evil"}},
		"another name":          {{Name: "evil"}},
		"a longer name":         {{Name: "database"}},
		"only above":            {{Name: ".."}},
		"back into it":          {{Name: "data/../data/x"}},
		"not local at the root": {{Name: "./../data"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := &call{Env: Env{Err: io.Discard}}
			err := c.unpack(archiveOf(t, entries...), "data", filepath.Join(dir, "in", "to"))
			require.Error(t, err) // there is no directory "in"
			require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
			require.ErrorIs(t, c.unpack(archiveOf(t, entries...), "data", filepath.Join(dir, "in", "to")), errEscape)
			left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}

	// Links in the archive are not made, and those that are in the destination are not followed
	// out of it.
	dir := t.TempDir()
	outside := t.TempDir()
	c := &call{Env: Env{Err: io.Discard}}
	require.NoError(t, c.unpack(archiveOf(t, tar.Header{Name: "data/", Typeflag: tar.TypeDir},
		tar.Header{Name: "data/link", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "data/link/evil", Size: 1}), "data", filepath.Join(dir, "to")))
	assert.NoFileExists(t, filepath.Join(outside, "evil"))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "to")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "to"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "to", "link")))
	require.Error(t, c.unpack(archiveOf(t, tar.Header{Name: "data/link/evil", Size: 1}),
		"data", filepath.Join(dir, "to")))
	assert.NoFileExists(t, filepath.Join(outside, "evil"))
}

// Relative links in the destination are not followed out of it, wherever it is a directory.
func TestArchiveEscapesByRelativeLinks(t *testing.T) {
	for _, tt := range []struct{ name, link, at, base, entry string }{
		{"in a directory that is named", "backup/x", "backup", ".", "./x/evil"},
		{"in the directory that is copied", "backup/data/x", "backup/data", "data", "./data/x/evil"},
		{"a file", "backup/data/x", "backup/data", "data", "data/x"},
		{"the directory that is copied", "backup/data", "backup/data", "data", "data/evil"},
		{"the file that is copied", "backup/data", "backup/data", "data", "data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			secret := filepath.Join(dir, "secret")
			require.NoError(t, os.Mkdir(secret, 0o755))
			link := filepath.Join(dir, tt.link)
			require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
			target := secret
			if filepath.Base(tt.entry) != "evil" {
				target = filepath.Join(secret, "evil") // a file that is made
			}
			target, err := filepath.Rel(filepath.Dir(link), target)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(target, link))
			c := &call{Env: Env{Err: io.Discard}}
			entries := []tar.Header{{Name: tt.entry, Size: 1}}
			require.Error(t, c.unpack(archiveOf(t, entries...), tt.base, filepath.Join(dir, tt.at)))
			assert.NoFileExists(t, filepath.Join(secret, "evil"))
		})
	}

	// A link that the user names, and one that stays in the destination, are followed.
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "disk", "sub"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dir, "disk"), filepath.Join(dir, "backup")))
	require.NoError(t, os.Symlink("sub", filepath.Join(dir, "disk", "x")))
	c := &call{Env: Env{Err: io.Discard}}
	require.NoError(t, c.unpack(archiveOf(t, tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "./x/file", Size: 1}), ".", filepath.Join(dir, "backup")))
	assert.FileExists(t, filepath.Join(dir, "disk", "sub", "file"))
}

// A copy ends with its error although the container continues to send.
func TestCopyOfWhatDoesNotEnd(t *testing.T) {
	var archive gobytes.Buffer
	_, err := io.Copy(&archive, archiveOf(t, tar.Header{Name: "data/", Typeflag: tar.TypeDir},
		tar.Header{Name: "evil", Size: 1}))
	require.NoError(t, err)
	logged, err := copyOf(t, func(ctx context.Context, out io.Writer) error {
		_, err := archive.WriteTo(out)
		for err == nil && ctx.Err() == nil {
			_, err = out.Write(make([]byte, 10<<10))
		}
		return err
	})
	require.ErrorIs(t, err, errEscape)
	assert.Empty(t, logged)
}

// What comes after an archive is no error: GNU tar pads to 10 KiB.
func TestPaddedArchive(t *testing.T) {
	logged, err := copyOf(t, func(_ context.Context, out io.Writer) error {
		_, err := io.Copy(out, io.MultiReader(archiveOf(t, tar.Header{Name: "data", Size: 1}),
			gobytes.NewReader(make([]byte, 1<<20))))
		return err
	})
	require.NoError(t, err)
	assert.Empty(t, logged)
}

// copyOf copies what the program tar of a container sends, and returns what is logged meanwhile.
func copyOf(t *testing.T, tar func(ctx context.Context, out io.Writer) error) (logged string, err error) {
	root := serveNode(t, &node{tar: tar})
	var buf gobytes.Buffer
	log := &sharedWriter{w: &buf}
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { fmt.Fprintln(log, args) }, funcr.Options{}))
	err = Run(ctx, []string{"cp", "--root-dir", root, "-c", "a", "web:/data", filepath.Join(t.TempDir(), "to")},
		Env{Out: io.Discard, Err: io.Discard})
	log.mu.Lock()
	defer log.mu.Unlock()
	return buf.String(), err
}

// archiveOf returns an archive with the entries, whose content is zeros.
func archiveOf(t *testing.T, entries ...tar.Header) io.Reader {
	var buf gobytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range entries {
		h.Mode = 0o644
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &buf
}

func FuzzUnpack(f *testing.F) {
	f.Add("data/x", "data", "link")
	f.Add("../x", ".", "")
	f.Fuzz(func(t *testing.T, name, base, link string) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
		var buf gobytes.Buffer
		w := tar.NewWriter(&buf)
		header := &tar.Header{Name: name, Size: 1, Mode: 0o644, Linkname: link}
		if link != "" {
			header.Typeflag, header.Size = tar.TypeSymlink, 0
		}
		if w.WriteHeader(header) != nil {
			return
		}
		_, _ = w.Write(make([]byte, header.Size))
		_ = w.Close()
		c := &call{Env: Env{Err: io.Discard}}
		_ = c.unpack(&buf, base, filepath.Join(dir, "in", "to"))
		for _, pattern := range []string{"*", "in/*"} {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			for _, file := range found {
				assert.Contains(t, []string{filepath.Join(dir, "in"), filepath.Join(dir, "in", "to")}, file)
			}
		}
	})
}
