package prober

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxRedirects is how many redirects are followed, the number that net/http has.
const maxRedirects = 10

// httpHandler makes HTTP requests.
type httpHandler struct {
	userAgent string
	transport *http.Transport
	// h2c is for probes of the protocol HTTP2, without TLS; nil if they are made by transport.
	h2c *http.Transport
}

func newHTTPHandler(opts Options) *httpHandler {
	h := &httpHandler{userAgent: opts.UserAgent, transport: &http.Transport{
		DialContext: dialBounded,
		// The certificate has no meaning for the health (API reference, HTTPGetAction).
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:  true,
		DisableKeepAlives:  true,
		DisableCompression: true, // sends no Accept-Encoding
		// Go's default is 10 MB, in which a container has room for headers that take hundreds
		// of megabytes when they are parsed.
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if opts.H2C {
		h.h2c = h.transport.Clone()
		h.h2c.Protocols = new(http.Protocols)
		h.h2c.Protocols.SetUnencryptedHTTP2(true)
	}
	return h
}

// maxReceived is how much is read of a connection, in bytes: a header, the part of the body that counts, the
// certificates, and what HTTP/2 reads ahead. Without it, a server that sends pings, settings or unknown frames without
// end is read for as long as the probe lasts.
const maxReceived = 256 << 10

var errReceived = fmt.Errorf("the server sends more than %d bytes", maxReceived)

// boundedConn is a connection of which maxReceived bytes are read. Its reader is one goroutine of net/http at a time.
type boundedConn struct {
	net.Conn
	left int
}

func dialBounded(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &boundedConn{conn, maxReceived}, nil
}

// Read implements [net.Conn].
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errReceived
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (*httpHandler) Name() string { return "httpGet" }

func (*httpHandler) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	return specProbe(c, kind, func(p *v1.Probe) bool { return p.HTTPGet != nil })
}

func (h *httpHandler) Check(ctx context.Context, t Target) (Outcome, string, error) {
	traced, cancel := closeAfter(ctx, t.Timeout+hangGrace)
	defer cancel()
	req, err := h.request(traced, t)
	if err != nil {
		return Unknown, "", err
	}
	transport := h.transport
	if p := t.Probe.HTTPGet.Protocol; p != nil && *p == v1.HTTPProtocolHTTP2 && h.h2c != nil {
		transport = h.h2c
	}
	client := &http.Client{Transport: transport, Timeout: t.Timeout, CheckRedirect: sameHost}
	res, err := client.Do(req)
	if err != nil {
		return failed(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return failed(ctx, err)
	case res.StatusCode < 200 || res.StatusCode >= 400:
		// Without the body: more people see the message than the output of the pod.
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode), nil
	case res.StatusCode >= 300:
		return Warning, "Probe terminated redirects, Response body: " + string(body), nil
	default:
		return Success, string(body), nil
	}
}

// hangGrace is how long a request may take after its timeout.
const hangGrace = 500 * time.Millisecond

// closeAfter returns a context for a request whose connections are closed when ctx or
// the time ends: HTTP/2 waits without a limit when it writes to a server that does not
// read, also when it only reads or closes the response. Every request has connections of
// its own; cancel closes them.
func closeAfter(ctx context.Context, d time.Duration) (traced context.Context, cancel func()) {
	limited, cancel := context.WithTimeout(ctx, d)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		context.AfterFunc(limited, func() { _ = got.Conn.Close() })
	}}), cancel
}

// sameHost follows redirects to the same host. A redirect to another host is an
// answer, and so no failure.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

func (h *httpHandler) request(ctx context.Context, t Target) (*http.Request, error) {
	get := t.Probe.HTTPGet
	address, err := t.HostPort(get.Host, get.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // as it stands
	}
	if u.Scheme = strings.ToLower(string(get.Scheme)); u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range get.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	if _, given := req.Header["User-Agent"]; !given {
		req.Header.Set("User-Agent", h.userAgent)
	}
	if _, given := req.Header["Accept"]; !given {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept") // empty in the spec: not to be sent
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}
