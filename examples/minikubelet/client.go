package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// socketName is the agent's socket in its root directory.
const socketName = "agent.sock"

// client talks to a running agent.
type client struct {
	socket string
	http   http.Client
	now    func() time.Time
}

func newClient(rootDir string) *client {
	c := &client{socket: filepath.Join(rootDir, socketName), now: time.Now}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
		},
	}
	return c
}

// do makes a request. An answer other than 200 is an error with what it says.
func (c *client) do(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if unwrapped := (*url.Error)(nil); errors.As(err, &unwrapped) {
			err = unwrapped.Err
		}
		return nil, fmt.Errorf("no agent answers on %s: %w; is it running, as this user and with this --root-dir?", c.socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, fmt.Errorf("the agent says: %s", strings.TrimSpace(string(said)))
	}
	return resp, nil
}

// pods returns the agent's pods.
func (c *client) pods(ctx context.Context) ([]*v1.Pod, error) {
	resp, err := c.do(ctx, http.MethodGet, "/pods", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list v1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the agent's list of pods: %w", err)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}
