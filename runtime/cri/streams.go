package cri

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.StreamLocator = (*Runtime)(nil)

// ExecURL implements [runtime.StreamLocator] with the call Exec.
func (r *Runtime) ExecURL(ctx context.Context, id runtime.ContainerID, cmd []string,
	opts runtime.StreamOptions) (*url.URL, error) {
	about := "container " + id.String()
	resp, err := call(ctx, r, "Exec", about, 0, r.rs.Exec, &criv1.ExecRequest{
		ContainerId: id.ID, Cmd: cmd, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return parseStreamURL("Exec", about, resp.GetUrl())
}

// AttachURL implements [runtime.StreamLocator] with the call Attach.
func (r *Runtime) AttachURL(ctx context.Context, id runtime.ContainerID, opts runtime.StreamOptions) (*url.URL, error) {
	about := "container " + id.String()
	resp, err := call(ctx, r, "Attach", about, 0, r.rs.Attach, &criv1.AttachRequest{
		ContainerId: id.ID, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return parseStreamURL("Attach", about, resp.GetUrl())
}

// PortForwardURL implements [runtime.StreamLocator] with the call PortForward.
func (r *Runtime) PortForwardURL(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error) {
	about := "sandbox " + sandboxID
	resp, err := call(ctx, r, "PortForward", about, 0, r.rs.PortForward,
		&criv1.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	if err != nil {
		return nil, err
	}
	return parseStreamURL("PortForward", about, resp.GetUrl())
}

// parseStreamURL parses the URL of a reply. The error does not contain the URL, which is a
// secret.
func parseStreamURL(call, about, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if parse := (*url.Error)(nil); errors.As(err, &parse) {
		err = parse.Err
	}
	if err == nil && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		err = errors.New("want one with the scheme http or https and a host")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: the runtime returned a URL that cannot be used: %w", about, call, err)
	}
	return u, nil
}
