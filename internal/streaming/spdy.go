package streaming

import (
	"net/http"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

// upgradeSPDY answers a SPDY request. accept receives the streams that the client opens; it must not block.
// If it returns nil, the request is answered.
//
// The library sends no pings, because the server must not send before the client does. The client of
// k8s.io/streaming (httpstream/spdy/roundtripper.go, SpdyRoundTripper.RoundTrip) reads the
// answer 101 from a bufio.Reader, and drops it with all that it holds. A ping that has arrived
// by then is lost, whole or in part; after a part, the client understands no further frame and
// misses the replies to its streams. Without pings the first frame of the server is such a
// reply. Clients send pings themselves.
func (s *Session) upgradeSPDY(w http.ResponseWriter, req *http.Request,
	accept httpstream.NewStreamHandler) httpstream.Connection {
	return spdy.NewResponseUpgrader().UpgradeResponse(s.writer(w, s.clientFrames), req, s.begun(accept))
}

// replied waits for the reply to a stream of the connection. If it returns false, the reply may have failed, and
// the library would wait for ever before it writes to the stream or closes it: only a reset returns.
func (s *Session) replied(conn httpstream.Connection, reply <-chan struct{}) bool {
	select {
	case <-reply: // also when it has failed, because of one of the following
	case <-s.ctx.Done():
		return false
	}
	select {
	case <-conn.CloseChan():
		return false
	case <-s.ctx.Done():
		return false
	default:
		return true
	}
}

// begun returns accept, and lets one more stream begin.
func (s *Session) begun(accept httpstream.NewStreamHandler) httpstream.NewStreamHandler {
	return func(stream httpstream.Stream, replied <-chan struct{}) error {
		select {
		case <-s.begins:
		default: // cannot happen
		}
		return accept(stream, replied)
	}
}

// tunnel answers a WebSocket request with the protocol of the tunnel and calls f with its connection.
func (s *Session) tunnel(w http.ResponseWriter, req *http.Request, f func(*websocket.Conn)) {
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
