package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/server"
)

// What a port serves.
const (
	apiHealthz  = "healthz"
	apiReadOnly = "read-only"
	apiKubelet  = "kubelet"
)

// listener is a port.
type listener struct {
	net.Listener
	api string
}

// port returns the component that serves a port.
func port(s *config.Settings, l listener, n local.Node, joins *member, m *metrics,
	tracer Tracer, opts server.Options) (func(context.Context) error, error) {
	switch l.api {
	case apiHealthz:
		return func(ctx context.Context) error {
			return server.Serve(ctx, l.Listener, server.Healthz(n.Agent, opts))
		}, nil
	case apiReadOnly:
		h := server.Measured(server.Handler(n.Agent, opts), m.requests, true)
		return func(ctx context.Context) error { return server.Serve(ctx, l.Listener, h) }, nil
	}
	api, err := newKubeletAPI(s, joins, m, opts.Logger)
	if err != nil {
		return nil, err
	}
	h := server.Kubelet(n.Agent, opts) // the pods that are desired, as kubelet lists them
	if tracer != nil {
		h = tracer.WrapHandler(h)
	}
	return func(ctx context.Context) error { return api.serve(ctx, l.Listener, h) }, nil
}

// listen opens the ports of the settings. If one cannot be opened, none is open.
func listen(s *config.Settings) ([]listener, error) {
	var out []listener
	open := func(host string, port int32, api, field, flag string) error {
		if port == 0 {
			return nil
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("opening the port of %s: %w, maybe by another agent; choose another with %s", field, err,
				flag)
		}
		if err != nil {
			return fmt.Errorf("opening the port of %s: %w", field, err)
		}
		out = append(out, listener{Listener: l, api: api})
		return nil
	}
	err := open(s.ReadOnlyAddress, s.ReadOnlyPort, apiReadOnly, "readOnlyPort", "--read-only-port, or none with 0")
	if err == nil {
		err = open(s.HealthzBindAddress, *s.HealthzPort, apiHealthz, "healthzPort", "--healthz-port, or none with 0")
	}
	if err == nil && *s.EnableServer {
		err = open(s.Address, s.Port, apiKubelet, "port", "--port, or none with --enable-server=false")
	}
	if err != nil {
		for _, l := range out {
			_ = l.Close()
		}
		return nil, err
	}
	return out, nil
}

// listenSocket opens the socket for commands, and notes which runtime they ask while no agent runs. If it cannot be
// opened, the agent runs without; but another agent in the same directory is an error.
func listenSocket(ctx context.Context, s *config.Settings, log logr.Logger) (net.Listener, error) {
	if err := local.NoteEndpoint(s.RootDir, endpointOf(s)); err != nil {
		log.Error(err, "Commands will not find the pods when no agent runs")
	}
	path := filepath.Join(s.RootDir, config.SocketName)
	l, err := server.ListenUnix(ctx, path)
	switch {
	case err == nil:
		log.V(1).Info("Serving", "address", path, "commands", true)
		return l, nil
	case ctx.Err() != nil: // the agent stops
		return nil, nil
	case errors.Is(err, server.ErrSocketInUse):
		return nil, fmt.Errorf("opening the socket for commands: %w", err)
	default:
		log.Error(err, "Commands will not find this agent", "socket", path)
		return nil, nil
	}
}
