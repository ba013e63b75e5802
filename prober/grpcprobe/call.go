package grpcprobe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	method = "/grpc.health.v1.Health/Check"
	// contentType is what requests have, and how the content type of a response
	// begins.
	contentType = "application/grpc"
	statusKey   = "Grpc-Status"
	// prefixLen is the length of what precedes a message: a flag for compression and
	// the length of the message.
	prefixLen = 5
	// timeoutSlack is by how much the server's deadline is later than ours. A server
	// resets the stream at its deadline; ours is to come first, as it is more precise.
	timeoutSlack = 100 * time.Millisecond
	// maxMessage is how long a response may be, in bytes. A health response takes 2;
	// the rest is for fields that are not known yet.
	maxMessage = 64 << 10
)

// check makes the call on the connection. Its error is an [*rpcError], or that of ctx.
func (c *Client) check(ctx context.Context, conn *http.ClientConn, address, service string) (servingStatus, error) {
	body := frame(appendRequest(nil, service))
	scheme := "http://"
	if c.TLS {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+address+method, bytes.NewReader(body))
	if err != nil {
		return 0, internal("%v", err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Te", "trailers") // finds proxies that drop trailers, as the protocol requires
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", encodeTimeout(time.Until(deadline)+timeoutSlack))
	}
	if c.UserAgent != "" {
		req.Header.Set("User-Agent", c.UserAgent)
	}
	res, err := conn.RoundTrip(req)
	if err != nil {
		return 0, unavailable(err)
	}
	defer func() { _ = res.Body.Close() }()
	message, err := readResponse(res)
	if err != nil {
		return 0, err
	}
	status, err := parseResponse(message)
	if err != nil {
		return 0, internal("the response is not a HealthCheckResponse: %v", err)
	}
	return status, nil
}

// readResponse returns the one message of a response whose status is OK.
func readResponse(res *http.Response) ([]byte, error) {
	if !isGRPC(res.Header.Get("Content-Type")) {
		return nil, notGRPC(res)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, prefixLen+maxMessage+1))
	switch {
	case err != nil:
		return nil, unavailable(err)
	case len(body) > prefixLen+maxMessage:
		return nil, &rpcError{codeResourceExhausted, fmt.Sprintf("the response is longer than %d bytes", maxMessage)}
	}
	trailer := res.Trailer // complete after the end of the body
	if trailer.Get(statusKey) == "" {
		trailer = res.Header // a response without messages may have its trailer there
	}
	if trailer.Get(statusKey) == "" && res.StatusCode != http.StatusOK {
		return nil, notGRPC(res)
	}
	if err := statusIn(trailer); err != nil {
		return nil, err
	}
	return unframe(body)
}

// notGRPC is the error for a response by HTTP alone, as from a proxy.
func notGRPC(res *http.Response) error {
	return &rpcError{codeOfHTTP(res.StatusCode),
		fmt.Sprintf("unexpected HTTP response: status %d (%s), content-type %q",
			res.StatusCode, http.StatusText(res.StatusCode), res.Header.Get("Content-Type"))}
}

// isGRPC reports whether a content type is that of gRPC, with any coding of messages.
func isGRPC(header string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(header), contentType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// statusIn returns nil if the headers have status OK, else the status as an error.
func statusIn(h http.Header) error {
	raw := h.Get(statusKey)
	if raw == "" {
		return internal("server closed the stream without sending trailers")
	}
	n, err := strconv.ParseUint(raw, 10, 32)
	switch {
	case err != nil:
		return internal("malformed grpc-status %q", raw)
	case code(n) == codeOK:
		return nil
	}
	message := h.Get("Grpc-Message")
	if decoded, err := url.PathUnescape(message); err == nil {
		message = decoded
	}
	return &rpcError{code(n), message}
}

// frame puts the prefix before a message.
func frame(message []byte) []byte {
	out := make([]byte, prefixLen, prefixLen+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}

// unframe returns the one message in the body.
func unframe(body []byte) ([]byte, error) {
	switch {
	case len(body) == 0:
		return nil, internal("the server sent no response message")
	case len(body) < prefixLen:
		return nil, internal("the response ends in the prefix of its message")
	case body[0] != 0:
		return nil, internal("the response is compressed though the request does not allow it")
	}
	length, message := binary.BigEndian.Uint32(body[1:]), body[prefixLen:]
	if uint64(length) != uint64(len(message)) {
		return nil, internal("the response has %d bytes after the prefix of a message of %d", len(message), length)
	}
	return message, nil
}

// encodeTimeout returns the value of the header grpc-timeout: at most 8 digits and a
// unit.
func encodeTimeout(d time.Duration) string {
	const most = 1e8 - 1
	if ms := max(d.Milliseconds(), 1); ms <= most {
		return strconv.FormatInt(ms, 10) + "m"
	}
	return strconv.FormatInt(min(int64(d.Seconds()), most), 10) + "S"
}

// unavailable makes an error of the connection one of the call.
func unavailable(err error) error {
	if errors.Is(err, errFlood) {
		return &rpcError{codeResourceExhausted, errFlood.Error()}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &rpcError{codeUnavailable, err.Error()}
}
