package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/internal/streaming"
	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// dialTimeout is the time that the server of a runtime's streams has to accept a
	// connection.
	dialTimeout = 10 * time.Second
	// maxRefusal is the maximum of the text of a refusal that is passed on, in bytes.
	maxRefusal = 64 << 10
)

// newTransport returns a transport to the servers of a runtime's streams. It does not use the
// proxy of the environment: a URL contains a secret.
func newTransport(responseTimeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: responseTimeout,
		DisableKeepAlives:     true,
		DisableCompression:    true,
		ForceAttemptHTTP2:     false,
	}
}

// locate calls a method of [runtime.StreamLocator], which has the time that a runtime has to open a
// session.
func (h *Handlers) locate(s *streaming.Session, call func(context.Context) (*url.URL, error)) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(s.Context(), h.sessions.SetupTimeout)
	defer cancel()
	at, err := call(ctx)
	if err != nil && s.Context().Err() == nil && ctx.Err() != nil {
		err = fmt.Errorf("the container runtime has not answered within %s: %w", h.sessions.SetupTimeout, err)
	}
	return at, err
}

// serveRemote connects a client of exec or attach with the URL. requested are the streams of the
// client, and opts those of the process.
func (h *Handlers) serveRemote(s *streaming.Session, w http.ResponseWriter, req *http.Request, target *url.URL,
	requested, opts runtime.StreamOptions) {
	if subprotocol.IsOffered(req, subprotocol.V5) {
		h.translate(s, w, req, target, requested, opts)
		return
	}
	h.pass(s, w, req, target)
}

// pass connects the client with the URL, byte by byte.
func (h *Handlers) pass(s *streaming.Session, w http.ResponseWriter, req *http.Request, target *url.URL) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := *target
			r.Out.URL, r.Out.Host = &to, to.Host
			r.Out.Header.Del("Authorization") // the client's permission is for this server
			r.Out.Header.Del("Cookie")
			dropToken(r.Out.Header)
		},
		Transport:      h.transport,
		ModifyResponse: upgradeOrRefusal,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if s.Context().Err() != nil {
				return
			}
			if r := (*refusal)(nil); !errors.As(err, &r) {
				err = unreachable(err)
			}
			refuse(w, err)
		},
	}
	proxy.ServeHTTP(s.Writer(w), req)
}

// bearerProtocol begins the WebSocket protocol that is the token of a browser's client
// (k8s.io/apiserver, package websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// dropToken removes a token from the WebSocket protocols that a client offers.
func dropToken(header http.Header) {
	kept := slices.DeleteFunc(subprotocol.Offered(header),
		func(p string) bool { return strings.HasPrefix(p, bearerProtocol) })
	if len(kept) == 0 {
		header.Del(subprotocol.Header)
		return
	}
	header.Set(subprotocol.Header, strings.Join(kept, ", "))
}

// upgradeHeaders are the headers of an answer 101 that clients need.
var upgradeHeaders = []string{
	httpstream.HeaderConnection, httpstream.HeaderUpgrade, httpstream.HeaderProtocolVersion,
	"Sec-Websocket-Accept", "Sec-Websocket-Extensions", subprotocol.Header, "Sec-Websocket-Version",
}

// upgradeOrRefusal keeps the headers of an upgrade that the client needs, and the code, the type and the
// text of an error: an answer must not lead the client elsewhere, or set cookies for this server. As in
// kubelet, other answers are errors.
func upgradeOrRefusal(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		maps.DeleteFunc(resp.Header,
			func(name string, _ []string) bool { return !slices.Contains(upgradeHeaders, name) })
		resp.Status = "" // its text is the runtime's
		if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
			resp.Body = &backend{conn}
		}
		return nil
	}
	if resp.StatusCode < http.StatusBadRequest {
		return &refusal{http.StatusInternalServerError, fmt.Sprintf("invalid upgrade response: status code %d",
			resp.StatusCode)}
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	_ = resp.Body.Close()
	header := http.Header{}
	if kind := resp.Header.Get("Content-Type"); kind != "" {
		header.Set("Content-Type", kind)
	}
	resp.Header, resp.Trailer, resp.Body, resp.ContentLength = header, nil, io.NopCloser(bytes.NewReader(text)),
		int64(len(text))
	return nil
}

// backend is the connection to a runtime's server. The server closes it when the command has ended, and
// the proxy ends with the first error of either direction. So data that the client sends after that, such
// as a ping, is dropped: an error would end the session before the client has received the rest.
type backend struct{ io.ReadWriteCloser }

func (b *backend) Write(data []byte) (int, error) {
	_, _ = b.ReadWriteCloser.Write(data)
	return len(data), nil
}

// CloseWrite ends the direction to the server.
func (b *backend) CloseWrite() error {
	if half, ok := b.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return nil
	}
	return errors.ErrUnsupported
}

// unreachable returns the error of a request to the runtime's server, without its URL.
func unreachable(err error) error {
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	return fmt.Errorf("error dialing backend: %w", err)
}

// refusal is the answer of a server that did not open a session.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// refuse passes on an error of upgrade.
func refuse(w http.ResponseWriter, err error) {
	if r := (*refusal)(nil); errors.As(err, &r) && r.code >= http.StatusBadRequest {
		http.Error(w, r.text, r.code)
		return
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// upgrade opens a SPDY connection with the protocol to the URL. It ends with ctx.
// The error is a refusal if the server has answered otherwise.
func (h *Handlers) upgrade(ctx context.Context, target *url.URL, protocol string) (net.Conn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return nil, unreachable(err)
	}
	req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	req.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return nil, unreachable(err)
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return nil, &refusal{resp.StatusCode, fmt.Sprintf("the container runtime has not opened the stream: %s: %s",
			resp.Status, strings.TrimSpace(string(text)))}
	}
	c := &upgraded{ReadWriteCloser: stream}
	c.unhook = context.AfterFunc(ctx, func() { _ = stream.Close() })
	return c, nil
}

// upgraded is the connection of an answer 101. Only its streams are used.
type upgraded struct {
	io.ReadWriteCloser
	unhook func() bool
}

// Close may be called more than once.
func (c *upgraded) Close() error {
	c.unhook()
	_ = c.ReadWriteCloser.Close()
	return nil
}
func (*upgraded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*upgraded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*upgraded) SetDeadline(time.Time) error      { return nil }
func (*upgraded) SetReadDeadline(time.Time) error  { return nil }
func (*upgraded) SetWriteDeadline(time.Time) error { return nil }

// translate is serveRemote for a client of version 5 of the protocol, which container runtimes
// do not have: it connects to the URL by SPDY and version 4.
func (h *Handlers) translate(s *streaming.Session, w http.ResponseWriter, req *http.Request, target *url.URL,
	requested, opts runtime.StreamOptions) {
	conn, err := h.upgrade(s.Context(), target, subprotocol.V4)
	if err != nil {
		if s.Context().Err() == nil {
			refuse(w, err)
		}
		return
	}
	defer conn.Close()
	if err := s.Translate(w, req, conn, streaming.Requested(requested), streaming.Requested(opts)); err != nil {
		refuse(w, err)
	}
}
