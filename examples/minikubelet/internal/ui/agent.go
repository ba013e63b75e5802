package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// errNoAgent means that no agent listens on the socket.
var errNoAgent = errors.New("no agent answers")

func isNoAgent(err error) bool { return errors.Is(err, errNoAgent) }

// agent sends requests to a running agent.
type agent struct {
	socket string
	http   http.Client
}

func newAgent(socket string) *agent {
	a := &agent{socket: socket}
	a.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
		},
	}
	return a
}

// get makes a request; the caller closes what it returns. The error wraps errNoAgent if there is no
// connection. An answer other than 200 is an error with the text of the answer.
func (a *agent) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		if unwrapped := (*url.Error)(nil); errors.As(err, &unwrapped) {
			err = unwrapped.Err
		}
		return nil, fmt.Errorf("%w on %s: %w; is it running, as this user and with this --root-dir?", errNoAgent, a.socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	return resp.Body, nil
}

// read decodes the answer to a request.
func read[T any](ctx context.Context, a *agent, path string) (out T, err error) {
	body, err := a.get(ctx, path, nil)
	if err != nil {
		return out, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&out); err != nil {
		return out, fmt.Errorf("reading %s of the agent: %w", path, err)
	}
	return out, nil
}
