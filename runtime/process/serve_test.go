//go:build linux

package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestExecSync(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	config := shell("c", "sleep 1000")
	config.Envs = []*criv1.KeyValue{{Key: "WHO", Value: []byte("me")}}
	config.WorkingDir = "/tmp"
	id := p.run(config)
	do := func(timeout int64, cmd ...string) (*criv1.ExecSyncResponse, error) {
		return n.rs.ExecSync(context.Background(), &criv1.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	resp, err := do(0, "sh", "-c", "echo $WHO in $PWD; echo oops >&2; exit 3")
	require.NoError(t, err)
	assert.Equal(t, "me in /tmp\n", string(resp.GetStdout()))
	assert.Equal(t, "oops\n", string(resp.GetStderr()))
	assert.EqualValues(t, 3, resp.GetExitCode())

	resp, err = do(0, "sh", "-c", "head -c 1000000 /dev/zero")
	require.NoError(t, err)
	assert.Equal(t, 1_000_000, len(resp.GetStdout()))

	_, err = do(0, "no-such-command")
	assert.ErrorContains(t, err, "is not on this host")

	pidOf := func(text string) (pid int) {
		t.Helper()
		_, err := fmt.Sscan(text, &pid)
		require.NoError(t, err)
		return pid
	}
	resp, err = do(0, "sh", "-c", "sleep 1000 & echo $!")
	require.NoError(t, err)
	assert.True(t, alive(pidOf(string(resp.GetStdout()))), "what a command leaves running does not delay its answer")

	file := filepath.Join(t.TempDir(), "pid")
	var data []byte
	for timeout := int64(1); len(data) == 0; timeout++ { // until it is long enough for the command to begin
		_, err = do(timeout, "sh", "-c", "echo $$ > "+file+"; exec sleep 1000")
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		data, _ = os.ReadFile(file)
	}
	eventually(t, func() bool { return !alive(pidOf(string(data))) }, "the command goes on after its timeout")

	state := n.state(id)
	n.kill(id, 1)
	n.nothingLeft(id, state)
	_, err = do(0, "true")
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
}

// out is a stream that a test reads.
type out struct{ testenv.Output }

func (o *out) Close() error { return nil }

// hasSize is a script that waits until the terminal has the size, and prints it.
func hasSize(size string) string {
	return fmt.Sprintf(`while [ "$(stty size)" != "%s" ]; do sleep 0.01; done; stty size; `, size)
}

func TestExecStreams(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "sleep 1000"))
	ctx := context.Background()

	var stdout, stderr out
	code, err := n.server.execStream(ctx, id, []string{"sh", "-c", "cat; echo done >&2; exit 5"},
		runtime.Streams{Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr})
	require.NoError(t, err)
	assert.EqualValues(t, 5, code)
	assert.Equal(t, "input", stdout.String())
	assert.Equal(t, "done\n", stderr.String())

	sizes := make(chan runtime.TerminalSize, 1)
	sizes <- runtime.TerminalSize{Width: 123, Height: 45}
	var screen out
	in, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := n.server.execStream(ctx, id,
			[]string{"sh", "-c", hasSize("45 123") + "read x; echo got $x in $TERM; test -t 0 && test -t 1"},
			runtime.Streams{Stdin: in, Stdout: &screen, TTY: true, Sizes: sizes})
		done <- err
	}()
	eventually(t, func() bool { return strings.Contains(screen.String(), "45 123") },
		"the terminal does not get the size")
	_, err = io.WriteString(write, "word\n")
	require.NoError(t, err)
	require.NoError(t, <-done)
	_ = write.Close()
	assert.Contains(t, screen.String(), "got word in xterm")

	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	var started out
	go func() {
		_, err := n.server.execStream(cancelled, id, []string{"sh", "-c", "echo started; exec sleep 1000"},
			runtime.Streams{Stdout: &started})
		done <- err
	}()
	eventually(t, func() bool { return started.String() != "" }, "the command does not start")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestAttach(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	config := shell("c", "echo up; while read x; do echo got $x; echo also $x >&2; done; echo end; exit 4")
	config.Stdin, config.StdinOnce = true, true
	id := p.run(config)
	p.says("c", "up")
	in, write := io.Pipe()
	var stdout, stderr out
	done := make(chan error, 1)
	go func() {
		done <- n.server.attachStream(context.Background(), id,
			runtime.Streams{Stdin: in, Stdout: &stdout, Stderr: &stderr})
	}()
	_, err := io.WriteString(write, "one\ntwo\n")
	require.NoError(t, err)
	p.says("c", "got two")
	require.NoError(t, write.Close())
	require.NoError(t, <-done)
	assert.EqualValues(t, 4, n.exited(id).GetExitCode(), "its input has ended with the attached client")
	assert.Equal(t, "got one\ngot two\nend\n", stdout.String())
	assert.Equal(t, "also one\nalso two\n", stderr.String())

	config = shell("tty", "test -t 0 || exit 9; "+hasSize("30 90")+"read x; echo got $x")
	config.Stdin, config.Tty = true, true
	id = p.run(config)
	sizes := make(chan runtime.TerminalSize, 1)
	sizes <- runtime.TerminalSize{Width: 90, Height: 30}
	var screen out
	in, write = io.Pipe()
	go func() {
		done <- n.server.attachStream(context.Background(), id, runtime.Streams{Stdin: in, Stdout: &screen,
			TTY: true, Sizes: sizes})
	}()
	eventually(t, func() bool { return strings.Contains(screen.String(), "30 90") },
		"the terminal does not get the size")
	_, err = io.WriteString(write, "word\n")
	require.NoError(t, err)
	require.NoError(t, <-done)
	_ = write.Close()
	assert.EqualValues(t, 0, n.exited(id).GetExitCode())
	assert.Contains(t, screen.String(), "got word")
	assert.Contains(t, p.log("tty"), "stdout F got word")
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	ours, theirs := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- n.server.forwardPort(context.Background(), p.id, int32(l.Addr().(*net.TCPAddr).Port), theirs)
	}()
	_, err = io.WriteString(ours, "hello")
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(ours, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	_ = ours.Close()
	require.NoError(t, <-done)
}

func TestStreamURLs(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "sleep 1000"))
	resp, err := n.rs.Exec(context.Background(), &criv1.ExecRequest{ContainerId: id, Cmd: []string{"true"},
		Stdout: true})
	require.NoError(t, err)
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+/exec/[\w-]{8,}$`, resp.GetUrl())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	bad, err := client.Get(resp.GetUrl()[:strings.LastIndex(resp.GetUrl(), "/")] + "/guessed")
	require.NoError(t, err)
	_ = bad.Body.Close()
	assert.Equal(t, http.StatusNotFound, bad.StatusCode)
	upgrade := func(protocol, version string) int {
		req, err := http.NewRequest(http.MethodGet, resp.GetUrl(), nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
		if version != "" {
			req.Header.Set("Sec-WebSocket-Protocol", version)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusBadRequest, upgrade("websocket", "v6.channel.k8s.io"))
	assert.Equal(t, http.StatusBadRequest, upgrade("SPDY/3.1", ""),
		"without a protocol version, but with a token that is still good")
	assert.Equal(t, http.StatusNotFound, upgrade("SPDY/3.1", ""), "good for once")
	attach, err := n.rs.Attach(context.Background(), &criv1.AttachRequest{ContainerId: id, Stdout: true})
	require.NoError(t, err)
	assert.Contains(t, attach.GetUrl(), "/attach/")
	forward, err := n.rs.PortForward(context.Background(),
		&criv1.PortForwardRequest{PodSandboxId: p.id, Port: []int32{80}})
	require.NoError(t, err)
	assert.Contains(t, forward.GetUrl(), "/portforward/")
}

func TestReopenLog(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done"))
	p.says("c", "line 3")
	path := filepath.Join(p.config.GetLogDirectory(), "c.log")
	require.NoError(t, os.Rename(path, path+".1"))
	_, err := n.rs.ReopenContainerLog(context.Background(), &criv1.ReopenContainerLogRequest{ContainerId: id})
	require.NoError(t, err)
	p.says("c", "line ")
	n.kill(id, 0)
	old, err := os.ReadFile(path + ".1")
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(old) + p.log("c")) {
		got = append(got, strings.TrimSpace(line[strings.Index(line, " F ")+3:]))
	}
	for i, line := range got {
		assert.Equal(t, fmt.Sprintf("line %d", i), line, "no line is lost")
	}
	_, err = n.rs.ReopenContainerLog(context.Background(), &criv1.ReopenContainerLogRequest{ContainerId: id})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
}

// A log that is opened again while its container ends: the error is that it has ended.
func TestReopenLogOfAContainerThatEnds(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	for i := range 20 {
		id := p.run(shell(fmt.Sprint("c", i), "sleep 0.05"))
		for {
			_, err := n.rs.ReopenContainerLog(context.Background(), &criv1.ReopenContainerLogRequest{ContainerId: id})
			if err != nil {
				require.Equal(t, codes.FailedPrecondition, status.Code(err), err)
				break
			}
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := n.rs.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err)
	p := n.pod()
	id := p.run(shell("c", "exit 2"))
	n.exited(id)
	n.clean()
	names := map[string]string{p.id: "pod", id: "container"}
	var got []string
	for range 8 {
		e, err := stream.Recv()
		require.NoError(t, err)
		got = append(got, names[e.GetContainerId()]+" "+
			strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT"))
		if e.GetContainerEventType() == criv1.ContainerEventType_CONTAINER_STOPPED_EVENT && e.GetContainerId() == id {
			require.Len(t, e.GetContainersStatuses(), 1)
			assert.EqualValues(t, 2, e.GetContainersStatuses()[0].GetExitCode())
		}
	}
	assert.ElementsMatch(t, []string{
		"pod CREATED", "pod STARTED", "container CREATED", "container STARTED", "container STOPPED", "pod STOPPED",
		"container DELETED", "pod DELETED",
	}, got)
}

func TestEventsAreNotLeftOut(t *testing.T) {
	var b broadcaster
	r := b.subscribe()
	for range eventBuffer + 1 {
		b.publish(&criv1.ContainerEventResponse{})
	}
	n := 0
	for range r.events {
		n++
	}
	assert.Equal(t, eventBuffer, n)
	assert.False(t, b.wanted())
}

func TestStats(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "sh -c 'while :; do :; done' & sleep 1000"))
	var st *criv1.ContainerStats
	eventually(t, func() bool {
		resp, err := n.rs.ContainerStats(context.Background(), &criv1.ContainerStatsRequest{ContainerId: id})
		require.NoError(t, err)
		st = resp.GetStats()
		return st.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 50_000_000 &&
			st.GetCpu().GetUsageNanoCores().GetValue() > 1_000_000
	}, "no CPU time is seen")
	assert.Positive(t, st.GetMemory().GetWorkingSetBytes().GetValue())
	pods, err := n.rs.ListPodSandboxStats(context.Background(), &criv1.ListPodSandboxStatsRequest{})
	require.NoError(t, err)
	require.Len(t, pods.GetStats(), 1)
	assert.EqualValues(t, 3, pods.GetStats()[0].GetLinux().GetProcess().GetProcessCount().GetValue())
	assert.Positive(t, pods.GetStats()[0].GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue())
	list, err := n.rs.ListContainerStats(context.Background(), &criv1.ListContainerStatsRequest{})
	require.NoError(t, err)
	assert.Len(t, list.GetStats(), 1)
	descriptors, err := n.rs.ListMetricDescriptors(context.Background(), &criv1.ListMetricDescriptorsRequest{})
	require.NoError(t, err)
	metrics, err := n.rs.ListPodSandboxMetrics(context.Background(), &criv1.ListPodSandboxMetricsRequest{})
	require.NoError(t, err)
	require.Len(t, metrics.GetPodMetrics(), 1)
	require.Len(t, metrics.GetPodMetrics()[0].GetContainerMetrics()[0].GetMetrics(), len(descriptors.GetDescriptors()))
	for i, m := range metrics.GetPodMetrics()[0].GetContainerMetrics()[0].GetMetrics() {
		assert.Equal(t, descriptors.GetDescriptors()[i].GetName(), m.GetName())
		assert.Len(t, m.GetLabelValues(), len(descriptors.GetDescriptors()[i].GetLabelKeys()))
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	ctx := context.Background()
	there := func(name string) bool {
		resp, err := n.is.ImageStatus(ctx, &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: name}})
		require.NoError(t, err)
		return resp.GetImage() != nil
	}
	assert.True(t, there("registry.example/never/heard:of"))
	pulled, err := n.is.PullImage(ctx, &criv1.PullImageRequest{Image: &criv1.ImageSpec{Image: "busybox"}})
	require.NoError(t, err)
	assert.Equal(t, "busybox:latest", pulled.GetImageRef())
	n.restart()
	list, err := n.is.ListImages(ctx, &criv1.ListImagesRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetImages(), 1)
	assert.Equal(t, []string{"busybox:latest"}, list.GetImages()[0].GetRepoTags())
	assert.NotZero(t, list.GetImages()[0].GetSize(), "clients take an image of size 0 for a bad answer")
	for range 2 {
		_, err = n.is.RemoveImage(ctx, &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: "busybox"}})
		require.NoError(t, err)
	}
	assert.False(t, there("busybox"))
	fs, err := n.is.ImageFsInfo(ctx, &criv1.ImageFsInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, n.opts.Dir, fs.GetImageFilesystems()[0].GetFsId().GetMountpoint())
}
