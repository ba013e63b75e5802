package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
)

// agent sends requests to a running agent.
type agent struct{ *control.Client }

func newAgent(socket string) *agent {
	return &agent{control.NewClient(socket, &net.Dialer{Timeout: 5 * time.Second})}
}

// get makes a request; the caller closes what it returns. The errors are those of [control.Client.Do].
func (a *agent) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := a.Do(ctx, http.MethodGet, path, query)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// read decodes the answer to a request.
func read[T any](ctx context.Context, a *agent, path string, query url.Values) (out T, err error) {
	body, err := a.get(ctx, path, query)
	if err != nil {
		return out, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&out); err != nil {
		return out, fmt.Errorf("reading %s of the agent: %w", path, err)
	}
	return out, nil
}
