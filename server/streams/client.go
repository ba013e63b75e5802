package streams

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/internal/subprotocol"
)

// The header with the type of a SPDY stream, and its values.
const (
	streamType   = "streamType"
	typeStdin    = "stdin"
	typeStdout   = "stdout"
	typeStderr   = "stderr"
	typeError    = "error"
	typeResize   = "resize"
	channelError = 3 // of WebSocket; stdin, stdout and stderr are 0, 1 and 2
	channelSize  = 4
)

// client has the streams of a client of exec or attach. Those that it has not requested are
// nil.
type client struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	sizes          io.Reader // a sequence of runtime.TerminalSize in JSON
	status         io.Writer // receives a metav1.Status in JSON at the end
	close          func()
}

// streams returns the streams for a runtime. Sizes are passed on until the session ends.
func (c *client) streams(s *session, tty bool) runtime.Streams {
	out := runtime.Streams{Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr, TTY: tty}
	if !tty {
		if c.sizes != nil { // unread, a size would hold up stdin
			go func() { _, _ = io.Copy(io.Discard, c.sizes) }() // ends with the stream
		}
		return out
	}
	out.Stderr = nil
	if c.sizes == nil {
		return out
	}
	sizes := make(chan runtime.TerminalSize)
	out.Sizes = sizes
	go func() { // ends with the stream or the session
		defer close(sizes)
		readSizes(c.sizes, func(size runtime.TerminalSize) error {
			select {
			case sizes <- size:
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
	}()
	return out
}

// acceptWebSocket answers a WebSocket request with one of the protocols. If it returns an
// error, the request is answered.
func (s *session) acceptWebSocket(w http.ResponseWriter, req *http.Request, opts runtime.StreamOptions, protocols ...string) (*client, error) {
	channel := func(requested bool, kind wsstream.ChannelType) wsstream.ChannelType {
		if requested {
			return kind
		}
		return wsstream.IgnoreChannel
	}
	channels := []wsstream.ChannelType{
		channel(opts.Stdin, wsstream.ReadChannel), channel(opts.Stdout, wsstream.WriteChannel), channel(opts.Stderr, wsstream.WriteChannel),
		wsstream.WriteChannel, channel(opts.TTY, wsstream.ReadChannel),
	}
	config := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range protocols {
		config[p] = wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	}
	conn := wsstream.NewConn(config)
	_, streams, err := conn.Open(s.writer(w, s.webSocket), req)
	if err != nil {
		return nil, err
	}
	c := &client{status: streams[channelError], close: func() { _ = conn.Close() }}
	first := c.status
	if opts.Stdin {
		c.stdin = streams[0]
	}
	if opts.Stderr {
		c.stderr, first = streams[2], streams[2]
	}
	if opts.Stdout {
		c.stdout, first = streams[1], streams[1]
	}
	if opts.TTY {
		c.sizes = streams[channelSize]
	}
	_, err = first.Write(nil) // the client waits for it, as for kubelet's
	ping := func() { _, _ = first.Write(nil) }
	s.ping.Store(&ping)
	return c, err
}

// acceptSPDY answers a SPDY request and waits for the client to open its streams. If it
// returns an error, the request is answered.
func (s *session) acceptSPDY(w http.ResponseWriter, req *http.Request, opts runtime.StreamOptions, timeout time.Duration) (*client, error) {
	if _, err := httpstream.Handshake(req, w, []string{subprotocol.V4}); err != nil {
		return nil, err
	}
	expected := map[string]bool{typeError: true, typeStdin: opts.Stdin, typeStdout: opts.Stdout, typeStderr: opts.Stderr, typeResize: opts.TTY}
	count := 0
	for _, is := range expected {
		if is {
			count++
		}
	}
	type opened struct {
		httpstream.Stream
		replied <-chan struct{}
	}
	var mu sync.Mutex // guards expected
	arrived := make(chan opened, count)
	// The library sends no pings, because the server must not send before the client does. The client of
	// k8s.io/streaming (httpstream/spdy/roundtripper.go, SpdyRoundTripper.RoundTrip) reads the
	// answer 101 from a bufio.Reader, and drops it with all that it holds. A ping that has arrived
	// by then is lost, whole or in part; after a part, the client understands no further frame and
	// misses the replies to its streams. Without pings the first frame of the server is such a
	// reply. Clients send pings themselves.
	conn := spdy.NewResponseUpgrader().UpgradeResponse(s.writer(w, spdyFrames), req, func(stream httpstream.Stream, replied <-chan struct{}) error {
		mu.Lock()
		defer mu.Unlock()
		kind := stream.Headers().Get(streamType)
		clear(stream.Headers()) // they may be large, and stay with the stream
		if !expected[kind] {
			return fmt.Errorf("a stream of the type %.100q is not expected", kind)
		}
		stream.Headers().Set(streamType, kind)
		expected[kind] = false
		arrived <- opened{stream, replied} // never blocks
		return nil
	})
	if conn == nil {
		return nil, errors.New("the upgrade has failed")
	}
	c := &client{close: func() { _ = conn.Close() }}
	late := time.NewTimer(timeout)
	defer late.Stop()
	for range count {
		var stream opened
		select {
		case stream = <-arrived:
		case <-late.C:
			c.close()
			return nil, fmt.Errorf("the client has not opened its streams within %s", timeout)
		case <-s.ctx.Done():
			c.close()
			return nil, s.ctx.Err()
		}
		select {
		case <-stream.replied: // nothing may be written before
		case <-s.ctx.Done():
			c.close()
			return nil, s.ctx.Err()
		}
		switch stream.Headers().Get(streamType) {
		case typeError:
			c.status = stream
		case typeStdin:
			c.stdin = stream
		case typeStdout:
			c.stdout = stream
		case typeStderr:
			c.stderr = stream
		case typeResize:
			c.sizes = stream
		}
	}
	// The client has read the answer 101: it has opened its streams. An empty frame means nothing to it.
	ping := func() { _, _ = c.status.Write(nil) }
	s.ping.Store(&ping)
	return c, nil
}
