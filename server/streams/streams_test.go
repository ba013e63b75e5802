package streams_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// everyWay calls f for runtimes in this process and in another one, and for clients that use
// WebSocket (version 5) and SPDY.
func everyWay(t *testing.T, f func(t *testing.T, local, websocket bool)) {
	for _, local := range []bool{true, false} {
		for _, websocket := range []bool{true, false} {
			t.Run(fmt.Sprintf("local=%t,websocket=%t", local, websocket), func(t *testing.T) { f(t, local, websocket) })
		}
	}
}

func TestExec(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		r, err := w.run(t, websocket, nil, "echo", "hello")
		require.NoError(t, err)
		assert.Equal(t, "hello in main tty=false", r.out.String())

		// The end of stdin reaches the command, whose output and exit code then come.
		r, err = w.run(t, websocket, strings.NewReader("12345"), "count")
		require.NoError(t, err)
		assert.Equal(t, "5 bytes", r.err.String())
		assert.Equal(t, 7, r.code)

		_, err = w.run(t, websocket, nil, "unknown")
		require.ErrorContains(t, err, "error executing command in container: no such command")
		if local {
			_, err = w.run(t, websocket, nil, "panic")
			require.ErrorContains(t, err, "error executing command in container: panic: on purpose")
		}
	})
}

// 10 MB in both directions arrive byte by byte.
func TestExecLarge(t *testing.T) {
	data := make([]byte, 10<<20)
	_, _ = pattern{}.Read(data)
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		r, err := w.run(t, websocket, bytes.NewReader(data), "cat")
		require.NoError(t, err)
		assert.Truef(t, bytes.Equal(data, r.out.Bytes()), "%d bytes have returned", r.out.Len())
		r, err = w.run(t, websocket, bytes.NewReader(data), "count")
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%d bytes", len(data)), r.err.String())
		r, err = w.run(t, websocket, nil, "pour", fmt.Sprint(len(data)))
		require.NoError(t, err)
		assert.Equal(t, len(data), r.out.Len())
	})
}

// sizes is a terminal whose size changes.
type sizes struct {
	ch chan remotecommand.TerminalSize
}

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s.ch
	if !ok {
		return nil
	}
	return &size
}

func TestTerminal(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		terminal := sizes{make(chan remotecommand.TerminalSize, 3)}
		for i := range uint16(3) {
			terminal.ch <- remotecommand.TerminalSize{Width: 80 + i, Height: 24 + i}
		}
		close(terminal.ch)
		var out bytes.Buffer
		u := w.url(t, "/exec/default/web/main", url.Values{"command": {"sizes", "3"}, "output": {"1"}, "input": {"1"},
			"tty": {"1"}, "error": {"1"}})
		err := executor(t, websocket, u).StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: terminal,
		})
		require.NoError(t, err)
		assert.Equal(t, "80x24 81x25 82x26 ", out.String())
	})
}

func TestAttach(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		for container, want := range map[string]string{
			"main": "attached to main tty=false stderr=true hello",
			// The request has no terminal, the container has one.
			"screen": "attached to screen tty=true stderr=false hello",
		} {
			if container == "screen" && !websocket && !local {
				continue // the runtime waits for the stream of the terminal, as with kubelet
			}
			var out, errOut bytes.Buffer
			u := w.url(t, "/attach/default/web/u1/"+container,
				url.Values{"input": {"1"}, "output": {"1"}, "error": {"1"}})
			err := executor(t, websocket, u).StreamWithContext(t.Context(), remotecommand.StreamOptions{
				Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut,
			})
			require.NoError(t, err)
			assert.Equal(t, want, out.String())
		}
	})
}

// Requests that do not begin a session are answered in kubelet's words.
func TestRefusals(t *testing.T) {
	const stdout = "output=1&command=true"
	for _, local := range []bool{true, false} {
		w := newWorld(t, local, streams.Options{})
		for target, want := range map[string]struct {
			code int
			text string
		}{
			"/exec/default/nobody/main?" + stdout: {404, "pod does not exist"},
			"/exec/other/web/main?" + stdout:      {404, "pod does not exist"},
			"/exec/default/web/u2/main?" + stdout: {404, "pod does not exist"},
			"/exec/default/web/none?" + stdout:    {404, `container not found ("none")`},
			"/exec/default/web/done?" + stdout: {500,
				`container not found ("done"): it has ended with exit code 3`},
			"/exec/default/web/new?" + stdout: {500,
				`container not found ("new"): it was not started yet`},
			"/exec/default/web/main?command=true":            {400, "you must specify at least 1 of stdin, stdout, stderr"},
			"/exec/default/web/main?command=true&tty=1":      {400, "you must specify at least 1 of stdin, stdout, stderr"},
			"/exec/default/web/main?command=true&output=yes": {400, "you must specify at least 1 of stdin, stdout, stderr"},
			"/exec/default/web/main?output=1":                {400, "no command is given: want the parameter command, once for each argument"},
			"/attach/default/nobody/main?output=1":           {404, "pod does not exist"},
			"/attach/default/web/none?output=1":              {404, `container not found ("none")`},
			"/attach/default/web/done?output=1":              {500, `container not found ("done"): it has ended with exit code 3`},
			"/portForward/default/nobody":                    {404, "pod does not exist"},
			"/portForward/default/web/u2":                    {404, "pod does not exist"},
			"/portForward/default/stopped":                   {500, `pod not found ("stopped_default"): it does not run`},
		} {
			conn, _, resp := w.raw(t, http.MethodPost, target, http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
			})
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, want.code, resp.StatusCode, target)
			assert.Equal(t, want.text, strings.TrimSpace(string(text)), target)
			require.NoError(t, resp.Body.Close())
			require.NoError(t, conn.Close())
		}
		_, _, resp := w.raw(t, http.MethodPost, "/exec/default/web/main?"+stdout, http.Header{})
		assert.Equal(t, 400, resp.StatusCode)
		resp.Body.Close()
		_, _, resp = w.raw(t, http.MethodGet, "/portForward/default/web", http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
		})
		assert.Equal(t, 400, resp.StatusCode)
		resp.Body.Close()
		_, _, resp = w.raw(t, http.MethodPut, "/exec/default/web/main?"+stdout, http.Header{})
		assert.Equal(t, 405, resp.StatusCode)
		resp.Body.Close()
	}
}

// The answer for a runtime without streams differs from that for a runtime that fails.
func TestNoStreams(t *testing.T) {
	w := &world{}
	w.serve(t, struct{}{}, streams.Options{})
	_, _, resp := w.raw(t, http.MethodPost, "/exec/default/web/main?output=1&command=true",
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}})
	defer resp.Body.Close()
	assert.Equal(t, http.StatusNotImplemented, resp.StatusCode)
}

// 50 sessions at once work, and one more than the maximum is refused.
func TestManySessions(t *testing.T) {
	const many = 50
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{MaxSessions: many, SetupTimeout: slowly})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var began, ended sync.WaitGroup
		began.Add(many)
		inputs := make([]*io.PipeWriter, many)
		opening := make(chan struct{}, 16) // all are open at once, but this many are opened at once
		for i := range many {
			in, out := io.Pipe()
			inputs[i] = out
			u := w.url(t, "/exec/default/web/main", url.Values{"command": {"cat"}, "output": {"1"}, "input": {"1"}})
			e := executor(t, websocket, u)
			opening <- struct{}{}
			ended.Go(func() {
				got := &firstWrite{first: func() { <-opening; began.Done() }}
				err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: got})
				assert.NoError(t, err)
				assert.Equal(t, fmt.Sprintf("begin%d", i), got.buf.String())
				_ = in.CloseWithError(err) // a session that has failed holds up nobody
				got.once.Do(got.first)
			})
			ended.Go(func() {
				_, err := io.WriteString(out, "begin")
				assert.NoError(t, err)
			})
		}
		began.Wait()
		assert.Equal(t, many, w.h.Sessions())
		conn, _, resp := w.raw(t, http.MethodPost, "/exec/default/web/main?output=1&command=echo",
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}})
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.Equal(t, "too many sessions: 50 are open\n", string(text))
		require.NoError(t, conn.Close())
		for i, in := range inputs {
			_, err := fmt.Fprint(in, i)
			require.NoError(t, err)
			require.NoError(t, in.Close())
		}
		ended.Wait()
	})
}

// firstWrite calls first at the first write.
type firstWrite struct {
	buf   bytes.Buffer
	once  sync.Once
	first func()
}

func (f *firstWrite) Write(b []byte) (int, error) {
	n, err := f.buf.Write(b)
	f.once.Do(f.first)
	return n, err
}
