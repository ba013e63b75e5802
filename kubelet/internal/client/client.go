package client

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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
)

// client sends requests to a running agent.
type client struct {
	*control.Client
	rootDir, socket string
	now             func() time.Time
	// left has the client answer from what the agent has left, and reports whether it does; nil: it never does.
	left func(ctx context.Context, noAgent error) bool
}

func newClient(rootDir string) *client {
	socket := filepath.Join(rootDir, config.SocketName)
	return &client{Client: control.NewClient(socket, &net.Dialer{}), rootDir: rootDir, socket: socket, now: time.Now}
}

// do makes a request, see [control.Client.Do]. An answer other than 200 is an error with the text of the answer.
func (c *client) do(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	resp, err := c.Do(ctx, method, path, query)
	if err != nil && c.left != nil && c.left(ctx, err) {
		c.left = nil // only by commands that make one request after the other
		return c.do(ctx, method, path, query)
	}
	if answer := (*control.AnswerError)(nil); errors.As(err, &answer) {
		return nil, fmt.Errorf("error from the agent: %w", answer)
	}
	return resp, err
}

// get decodes the answer to a GET request. what is its content.
func get[T any](ctx context.Context, c *client, path string, query url.Values, what string) (out T, err error) {
	resp, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("reading the agent's list of %s: %w", what, err)
	}
	return out, nil
}

// pods returns the pods that the agent runs or ends.
func (c *client) pods(ctx context.Context) ([]*v1.Pod, error) {
	list, err := get[v1.PodList](ctx, c, "/pods", nil, "pods")
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// holdings returns what containers hold for themselves.
func (c *client) holdings(ctx context.Context) ([]control.Holding, error) {
	return get[[]control.Holding](ctx, c, control.ResourcesPath, nil, "what containers hold")
}

// gone returns the pods that are gone, the latest first.
func (c *client) gone(ctx context.Context) ([]recent.Gone, error) {
	return get[[]recent.Gone](ctx, c, control.GonePath, nil, "pods that are gone")
}

// histories returns the pods that have a history.
func (c *client) histories(ctx context.Context) (control.Histories, error) {
	return get[control.Histories](ctx, c, control.HistoryPath, nil, "pods that have a history")
}

// history calls print with each entry of the history of the pod. If follow is true, it does
// so until ctx ends.
func (c *client) history(ctx context.Context, uid types.UID, follow bool, print func(history.Entry) error) error {
	query := url.Values{}
	if follow {
		query.Set("follow", "true")
	}
	resp, err := c.do(ctx, http.MethodGet, control.HistoryPath+url.PathEscape(string(uid)), query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var e history.Entry
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the history of the pod: %w", err)
		}
		if err := print(e); err != nil {
			return err
		}
	}
}
