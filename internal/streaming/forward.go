package streaming

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

// The headers of the streams of a forwarded connection, which has two: one for data, one
// for an error.
const (
	portHeader      = "port"
	requestIDHeader = "requestID"
	typeData        = "data"
	maxRequestID    = 256 // bytes; kubectl's are small numbers
)

// Forward is ForwardPort of a runtime.Streamer for one sandbox. It does not panic.
type Forward func(ctx context.Context, port int32, conn io.ReadWriteCloser) error

// ServeForward forwards connections of a client to ports of a sandbox, until the client has closed its
// connection and all have ended. ports are those of a client that does not name one with each connection.
func (s *Session) ServeForward(w http.ResponseWriter, req *http.Request, sandboxID string,
	ports []int32, forward Forward) {
	if wsstream.IsWebSocketRequest(req) && !subprotocol.IsOffered(req, subprotocol.Tunnel) {
		s.forwardChannels(w, req, sandboxID, ports, forward)
		return
	}
	f := &forwarder{s: s, sandboxID: sandboxID, connect: forward, upgraded: make(chan struct{}),
		pairs: map[string]*pair{}}
	ping := f.ping
	s.ping.Store(&ping)
	defer f.running.Wait()
	defer s.cancel()
	if wsstream.IsWebSocketRequest(req) {
		s.tunnel(w, req, func(ws *websocket.Conn) {
			conn, err := spdy.NewServerConnection(newSPDYConn(ws, s.clientFrames), s.begun(f.accept))
			if err == nil {
				f.serve(conn)
			}
		})
		return
	}
	if _, err := httpstream.Handshake(req, w, []string{subprotocol.Forward}); err != nil {
		return
	}
	if conn := s.upgradeSPDY(w, req, f.accept); conn != nil {
		f.serve(conn)
	}
}

// MaxPorts is the maximum number of ports of a WebSocket client, which has two channels for each. The
// number of a channel is one byte.
const MaxPorts = 127

// forwardChannels forwards one connection to each port for a WebSocket client. On both channels of a port its
// number comes first.
func (s *Session) forwardChannels(w http.ResponseWriter, req *http.Request, sandboxID string,
	ports []int32, forward Forward) {
	if len(ports) == 0 || len(ports) > MaxPorts {
		http.Error(w, fmt.Sprintf("%d ports are requested: want 1 to %d", len(ports), MaxPorts), http.StatusBadRequest)
		return
	}
	var channels []wsstream.ChannelType
	for range ports {
		channels = append(channels, wsstream.ReadWriteChannel, wsstream.WriteChannel)
	}
	config := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range []string{v0, subprotocol.V4, v4Base64} {
		config[p] = wsstream.ChannelProtocolConfig{Binary: p != v4Base64, Channels: channels}
	}
	conn := wsstream.NewConn(config)
	_, streams, err := conn.Open(s.writer(w, s.webSocket), req)
	if err != nil {
		s.notAccepted(err)
		return
	}
	defer conn.Close()
	ping := func() { _, _ = streams[0].Write(nil) }
	s.ping.Store(&ping)
	var running sync.WaitGroup
	for i, port := range ports {
		data, failed := streams[2*i], streams[2*i+1]
		number := binary.LittleEndian.AppendUint16(nil, uint16(port))
		_, _ = data.Write(number)
		_, _ = failed.Write(number)
		running.Go(func() {
			err := forward(s.ctx, port, channel{data})
			if err != nil && s.ctx.Err() == nil {
				_, _ = io.WriteString(failed, forwardError(sandboxID, port, err))
			}
			_, _ = data.Close(), failed.Close()
		})
	}
	running.Wait()
	s.over.Store(true)
}

// channel is a channel of a WebSocket, of which no single direction can end.
type channel struct{ io.ReadWriter }

// Close implements [io.Closer]. It does nothing.
func (channel) Close() error { return nil }

// forwardError returns an error for a client in kubelet's words.
func forwardError(sandboxID string, port int32, err error) string {
	return fmt.Sprintf("error forwarding port %d to pod %s: %v", port, sandboxID, err)
}

// forwarder forwards the connections of one session.
type forwarder struct {
	s         *Session
	sandboxID string
	connect   Forward
	running   sync.WaitGroup

	upgraded chan struct{}         // closed when the upgrade has returned
	conn     httpstream.Connection // is set then

	mu    sync.Mutex
	ended bool             // no stream is accepted any more
	pairs map[string]*pair // those that are open, by their request ID
}

// pair is the two streams of a forwarded connection. It is guarded by the lock of the
// forwarder.
type pair struct {
	data, err httpstream.Stream
	replied   [2]<-chan struct{} // of data and err
	port      int32              // of data
	late      *time.Timer        // stopped when both are there
	open      bool               // something may be written to both
}

// serve waits for the end of the client's connection.
func (f *forwarder) serve(conn httpstream.Connection) {
	f.conn = conn
	close(f.upgraded)
	select {
	case <-conn.CloseChan():
	case <-f.s.ctx.Done():
	}
	_ = conn.Close()
	var left []httpstream.Stream
	f.mu.Lock()
	f.ended = true
	for _, p := range f.pairs {
		p.late.Stop()
		left = append(left, p.data, p.err)
	}
	f.mu.Unlock()
	reset(left...) // conn does not have one yet that has just arrived
}

// accept receives a stream. It does not block.
func (f *forwarder) accept(stream httpstream.Stream, replied <-chan struct{}) error {
	header := stream.Headers()
	number := header.Get(portHeader)
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("the header %s is %.100q: want a port", portHeader, number)
	}
	kind, id := header.Get(streamType), header.Get(requestIDHeader)
	clear(header) // they may be large, and stay with the stream
	if kind != typeData && kind != typeError || id == "" || len(id) > maxRequestID {
		return fmt.Errorf("want the headers %s, data or error, and %s", streamType, requestIDHeader)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return errors.New("the session has ended")
	}
	p := f.pairs[id]
	if p == nil {
		if len(f.pairs) >= f.s.server.MaxForwards {
			return fmt.Errorf("too many connections at once: %d are open", len(f.pairs))
		}
		p = &pair{}
		f.pairs[id] = p
		p.late = time.AfterFunc(f.s.server.SetupTimeout, func() { f.expire(id, p) })
	}
	which, at := &p.data, 0
	if kind == typeError {
		which, at = &p.err, 1
	}
	if *which != nil {
		return fmt.Errorf("connection %s has a stream of the type %s already", id, kind)
	}
	*which, p.replied[at] = stream, replied
	if kind == typeData {
		p.port = int32(port)
	}
	if p.data != nil && p.err != nil && p.late.Stop() {
		f.running.Go(func() { f.forward(id, p) })
	}
	return nil
}

// ping sends an empty frame on a connection that is open, if there is one. It means nothing to the
// client.
func (f *forwarder) ping() {
	var stream httpstream.Stream
	f.mu.Lock()
	for _, p := range f.pairs {
		if p.open {
			stream = p.err
			break
		}
	}
	f.mu.Unlock()
	if stream != nil {
		_, _ = stream.Write(nil)
	}
}

// setOpen changes whether something may be written to the streams of a connection.
func (f *forwarder) setOpen(p *pair, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.open = open
}

// expire gives up a connection of which only one stream was opened.
func (f *forwarder) expire(id string, p *pair) {
	f.mu.Lock()
	data, failed, reply := p.data, p.err, p.replied[1]
	delete(f.pairs, id) // a stream that comes from here on is one of another connection
	f.mu.Unlock()
	if failed != nil && f.replied(reply) {
		_, _ = io.WriteString(failed, "timed out waiting for streams")
		_ = failed.Close()
	}
	f.remove(data, failed)
}

// replied is [Session.replied]. It waits for the upgrade, too.
func (f *forwarder) replied(reply <-chan struct{}) bool {
	select {
	case <-f.upgraded:
		return f.s.replied(f.conn, reply)
	case <-f.s.ctx.Done():
		return false
	}
}

// reset ends streams in both directions. If only one is ended, the library keeps a stream until the client
// ends the other one, and waits for ever to deliver what the client sends on it.
func reset(streams ...httpstream.Stream) {
	for _, stream := range streams {
		if stream != nil {
			_ = stream.Reset()
		}
	}
}

// remove ends the streams of a connection that is not in pairs any more.
func (f *forwarder) remove(streams ...httpstream.Stream) {
	reset(streams...)
	select {
	case <-f.upgraded:
		f.conn.RemoveStreams(streams...)
	default:
	}
}

// oneReader has one Read at a time: a runtime may have left one behind when it returns.
type oneReader struct {
	httpstream.Stream
	reading chan struct{} // holds a token during a Read
}

func (r *oneReader) Read(b []byte) (int, error) {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	return r.Stream.Read(b)
}

// forward forwards one connection.
func (f *forwarder) forward(id string, p *pair) {
	if f.replied(p.replied[0]) && f.replied(p.replied[1]) {
		f.setOpen(p, true)
		data := &oneReader{p.data, make(chan struct{}, 1)}
		err := f.connect(f.s.ctx, p.port, data)
		if err != nil && !errors.Is(err, f.s.ctx.Err()) {
			_, _ = io.WriteString(p.err, forwardError(f.sandboxID, p.port, err))
			_ = p.data.Reset()
		}
		f.setOpen(p, false)
		// What the client still sends is read until it closes its side: unread, it would hold up
		// the other connections.
		_, _ = p.data.Close(), p.err.Close()
		discard(data)
	}
	f.mu.Lock()
	delete(f.pairs, id)
	f.mu.Unlock()
	f.remove(p.data, p.err)
}
