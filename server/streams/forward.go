package streams

import (
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

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/internal/subprotocol"
)

// The headers of the streams of a forwarded connection, which has two: one for data, one
// for an error.
const (
	portHeader      = "port"
	requestIDHeader = "requestID"
	typeData        = "data"
	// maxForwards is the maximum number of connections that a session has at once.
	maxForwards  = 1000
	maxRequestID = 256 // bytes; kubectl's are small numbers
)

// serveTunnel answers a WebSocket request with the protocol of the tunnel and calls f with
// its connection.
func (s *session) serveTunnel(w http.ResponseWriter, req *http.Request, f func(*websocket.Conn)) {
	websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = []string{subprotocol.Tunnel} // which the client offers
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			f(ws)
		},
	}.ServeHTTP(s.writer(w, nil), req)
}

// serveForward forwards connections of a client to ports of a pod whose runtime does that in
// this process, until the client has closed its connection and all have ended.
func (h *Handlers) serveForward(s *session, w http.ResponseWriter, req *http.Request, sandboxID string) {
	f := &forwarder{h: h, s: s, sandboxID: sandboxID, pairs: map[string]*pair{}}
	ping := f.ping
	s.ping.Store(&ping)
	defer f.running.Wait()
	defer s.cancel()
	if wsstream.IsWebSocketRequest(req) {
		s.serveTunnel(w, req, func(ws *websocket.Conn) {
			conn, err := spdy.NewServerConnection(newSPDYConn(ws), f.accept)
			if err == nil {
				f.serve(conn)
			}
		})
		return
	}
	if _, err := httpstream.Handshake(req, w, []string{subprotocol.Forward}); err != nil {
		return
	}
	if conn := spdy.NewResponseUpgrader().UpgradeResponse(s.writer(w, spdyFrames), req, f.accept); conn != nil {
		f.serve(conn)
	}
}

// forwarder forwards the connections of one session.
type forwarder struct {
	h         *Handlers
	s         *session
	sandboxID string
	running   sync.WaitGroup

	mu    sync.Mutex
	conn  httpstream.Connection // nil until the upgrade has returned
	ended bool                  // no stream is accepted any more
	pairs map[string]*pair      // those that are open, by their request ID
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
	f.mu.Lock()
	f.conn = conn
	f.mu.Unlock()
	select {
	case <-conn.CloseChan():
	case <-f.s.ctx.Done():
	}
	_ = conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	for _, p := range f.pairs {
		p.late.Stop()
	}
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
		if len(f.pairs) >= f.h.maxForwards {
			return fmt.Errorf("too many connections at once: %d are open", len(f.pairs))
		}
		p = &pair{}
		f.pairs[id] = p
		p.late = time.AfterFunc(f.h.opts.SetupTimeout, func() { f.expire(id, p) })
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
	data, failed := p.data, p.err
	delete(f.pairs, id) // a stream that comes from here on is one of another connection
	f.mu.Unlock()
	if failed != nil {
		_, _ = io.WriteString(failed, "timed out waiting for streams")
	}
	f.remove(data, failed)
}

// remove ends the streams of a connection that is not in pairs any more.
func (f *forwarder) remove(streams ...httpstream.Stream) {
	for _, stream := range streams {
		if stream != nil {
			_ = stream.Close()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != nil {
		f.conn.RemoveStreams(streams...)
	}
}

// forward forwards one connection.
func (f *forwarder) forward(id string, p *pair) {
	for _, replied := range p.replied {
		select {
		case <-replied: // nothing may be written before
		case <-f.s.ctx.Done():
			return
		}
	}
	f.setOpen(p, true)
	err := runtime.Recover(func() error { return f.h.local.ForwardPort(f.s.ctx, f.sandboxID, p.port, p.data) })
	if err != nil && !errors.Is(err, f.s.ctx.Err()) {
		_, _ = fmt.Fprintf(p.err, "error forwarding port %d to pod %s: %v", p.port, f.sandboxID, err) // kubelet's words
		_ = p.data.Reset()
	}
	f.setOpen(p, false)
	// What the client still sends is read until it closes its side: unread, it would hold up
	// the other connections.
	_, _ = p.data.Close(), p.err.Close()
	_, _ = io.Copy(io.Discard, p.data)
	f.mu.Lock()
	delete(f.pairs, id)
	f.mu.Unlock()
	f.remove(p.data, p.err)
}
