package streaming

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
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
	sizes          io.Reader // a sequence of Size in JSON
	status         io.Writer // receives a metav1.Status in JSON at the end
	text           bool      // status receives only the message of the metav1.Status
	close          func()
}

// streams returns the streams for a runtime. Sizes are passed on until the session ends.
func (c *client) streams(s *Session, tty bool) Streams {
	out := Streams{Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr, TTY: tty}
	if !tty {
		if c.sizes != nil { // unread, a size would hold up stdin
			go discard(c.sizes)
		}
		return out
	}
	out.Stderr = nil
	if c.sizes == nil {
		return out
	}
	sizes := make(chan Size)
	out.Sizes = sizes
	go func() { // ends with the stream or the session
		defer close(sizes)
		readSizes(c.sizes, func(size Size) error {
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
func (s *Session) acceptWebSocket(w http.ResponseWriter, req *http.Request, opts Requested,
	protocols ...string) (*client, error) {
	channel := func(requested bool, kind wsstream.ChannelType) wsstream.ChannelType {
		if requested {
			return kind
		}
		return wsstream.IgnoreChannel
	}
	channels := []wsstream.ChannelType{
		channel(opts.Stdin, wsstream.ReadChannel), channel(opts.Stdout, wsstream.WriteChannel),
		channel(opts.Stderr, wsstream.WriteChannel),
		wsstream.WriteChannel, channel(opts.TTY, wsstream.ReadChannel),
	}
	config := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range protocols {
		config[p] = wsstream.ChannelProtocolConfig{Binary: p != v1Base64 && p != v4Base64, Channels: channels}
	}
	conn := wsstream.NewConn(config)
	protocol, streams, err := conn.Open(s.writer(w, s.webSocket), req)
	if err != nil {
		return nil, err
	}
	c := &client{status: streams[channelError], text: slices.Contains([]string{v0, v1, v1Base64}, protocol),
		close: func() { _ = conn.Close() }}
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
//
// Those of a client that attaches may be others than those of the process, such as stderr in place of the sizes
// of a terminal. So their number is expected, as in kubelet.
func (s *Session) acceptSPDY(w http.ResponseWriter, req *http.Request, opts Requested) (*client, error) {
	if _, err := httpstream.Handshake(req, w, []string{subprotocol.V4}); err != nil {
		return nil, err
	}
	expected := 1 // the status
	for _, is := range []bool{opts.Stdin, opts.Stdout, opts.Stderr, opts.TTY} {
		if is {
			expected++
		}
	}
	a := &acceptor{free: map[string]bool{typeError: true, typeStdin: true, typeStdout: true, typeStderr: true,
		typeResize: true}}
	a.arrived = make(chan opened, len(a.free))
	conn := s.upgradeSPDY(w, req, a.accept)
	if conn == nil {
		return nil, errors.New("the upgrade has failed")
	}
	streams := map[string]httpstream.Stream{}
	c := &client{close: func() { _ = conn.Close(); a.close() }}
	late := time.NewTimer(s.server.SetupTimeout)
	defer late.Stop()
	for len(streams) < expected || streams[typeError] == nil {
		var stream opened
		select {
		case stream = <-a.arrived:
		case <-late.C:
			c.close()
			return nil, fmt.Errorf("the client has not opened its streams within %s", s.server.SetupTimeout)
		case <-s.ctx.Done():
			c.close()
			return nil, s.ctx.Err()
		}
		if !s.replied(conn, stream.replied) { // nothing may be written before
			c.close()
			return nil, errors.New("the client has disconnected")
		}
		streams[stream.kind] = stream
	}
	a.discard()
	c.status = streams[typeError]
	if stdin := streams[typeStdin]; stdin != nil {
		if c.stdin = stdin; !opts.Stdin {
			c.stdin = nil
			go discard(stdin)
		}
	}
	if stdout := streams[typeStdout]; stdout != nil && opts.Stdout {
		c.stdout = stdout
	}
	if stderr := streams[typeStderr]; stderr != nil && opts.Stderr {
		c.stderr = stderr
	}
	if sizes := streams[typeResize]; sizes != nil {
		c.sizes = sizes
	}
	// The client has read the answer 101: it has opened its streams. An empty frame means nothing to it.
	ping := func() { _, _ = c.status.Write(nil) }
	s.ping.Store(&ping)
	return c, nil
}

// acceptor receives the streams of a SPDY client, one of each type.
type acceptor struct {
	arrived chan opened // has room for all

	mu       sync.Mutex
	free     map[string]bool // the types of which the client may still open a stream
	all      []httpstream.Stream
	discards bool // streams that come now are not used
}

type opened struct {
	httpstream.Stream
	kind    string
	replied <-chan struct{}
}

// accept receives a stream. It does not block.
func (a *acceptor) accept(stream httpstream.Stream, replied <-chan struct{}) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := stream.Headers().Get(streamType)
	clear(stream.Headers()) // they may be large, and stay with the stream
	if !a.free[kind] {
		return fmt.Errorf("a stream of the type %.100q is not expected", kind)
	}
	a.free[kind] = false
	a.all = append(a.all, stream)
	if a.discards {
		go discard(stream)
		return nil
	}
	a.arrived <- opened{stream, kind, replied}
	return nil
}

// discard reads and drops what the client sends on streams that are not used. Unread, it would hold up the
// others.
func (a *acceptor) discard() {
	a.mu.Lock()
	a.discards = true
	a.mu.Unlock()
	for len(a.arrived) > 0 {
		go discard(<-a.arrived)
	}
}

// discard ends with the stream.
func discard(stream io.Reader) { _, _ = io.Copy(io.Discard, stream) }

// close ends all streams. The connection, which is closed, does not have one yet that has just arrived.
func (a *acceptor) close() {
	a.mu.Lock()
	clear(a.free)
	left := a.all
	a.mu.Unlock()
	reset(left...)
}
