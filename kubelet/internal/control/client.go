package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ErrNoAgent means that no agent listens on the socket.
var ErrNoAgent = errors.New("no agent answers")

// AnswerError is an answer of the agent other than 200. Its text is that of the answer.
type AnswerError struct{ Text string }

func (e *AnswerError) Error() string { return e.Text }

// Client sends requests to a running agent. Make one with [NewClient].
type Client struct {
	// Transport connects to the agent, whatever the host of a URL is.
	Transport http.RoundTripper

	socket string
}

// NewClient returns a client of the agent with the socket. It connects for each request, by the dialer.
func NewClient(socket string, dialer *net.Dialer) *Client {
	return &Client{socket: socket, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
}

// Do makes a request; the caller closes the body of the answer. The error wraps [ErrNoAgent] if there is no connection,
// and is an [*AnswerError] if the answer is not 200.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: c.Transport}).Do(req)
	if err != nil {
		if unwrapped := (*url.Error)(nil); errors.As(err, &unwrapped) {
			err = unwrapped.Err
		}
		return nil, fmt.Errorf("%w on %s: %w; is it running, as this user and with this --root-dir?",
			ErrNoAgent, c.socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, &AnswerError{strings.TrimSpace(string(text))}
	}
	return resp, nil
}
