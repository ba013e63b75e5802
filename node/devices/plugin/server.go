package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// SocketName is the name of the socket at which plugins register.
const SocketName = "kubelet.sock"

// Manager is the part of a [devices.Manager] that a [Server] uses.
type Manager interface {
	// Serve offers the devices of the provider until its Watch returns or ctx ends.
	Serve(ctx context.Context, p devices.Provider) error
}

// Server has plugins register, and serves them. It is a component of an agent. Make one with [New].
type Server struct {
	dir     string
	manager Manager
	node    lifecycle.Node
	log     logr.Logger
	running sync.Once

	// mu guards the fields below. ctx is that of Run, nil before and after. serving are the goroutines of plugins, and
	// connected ends those of a plugin.
	mu        sync.Mutex
	failed    error // of the socket
	ctx       context.Context
	serving   sync.WaitGroup
	connected map[*Plugin]context.CancelFunc
}

var (
	_ lifecycle.Joiner = (*Server)(nil)
	_ lifecycle.Runner = (*Server)(nil)
	_ plugins.Handler  = (*Server)(nil)
)

// New returns a server of plugins, with the socket in the directory.
func New(dir string, manager Manager) (*Server, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("device plugins: the directory %q is no absolute path", dir)
	}
	if manager == nil {
		return nil, errors.New("device plugins: the manager is nil")
	}
	s := &Server{dir: dir, manager: manager, connected: map[*Plugin]context.CancelFunc{}}
	return s, s.Join(lifecycle.NopNode{})
}

// listening is the back-off of a socket that cannot be made.
var listening = flow.Backoff{Min: time.Second, Max: time.Minute}

// Name implements [lifecycle.Component].
func (s *Server) Name() string { return "device plugins" }

// Join implements [lifecycle.Joiner].
func (s *Server) Join(node lifecycle.Node) error {
	s.node, s.log = node, node.Logger()
	return nil
}

// Run serves the socket and the plugins until ctx ends. A socket that cannot be made is logged and tried again, because
// pods without devices need no plugins.
func (s *Server) Run(ctx context.Context) error {
	err := fmt.Errorf("device plugins: %w", runtime.ErrAlreadyRunning)
	s.running.Do(func() { err = nil })
	if err != nil {
		return err
	}
	defer s.serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	listening.Repeat(ctx, func() error { return s.listen(ctx) }, func(err error, retryIn time.Duration) {
		s.log.Error(err, "Device plugins cannot register; trying again", "retryIn", retryIn)
		s.setFailed(err)
	})
	s.mu.Lock()
	s.ctx = nil // no goroutine is added after this
	s.mu.Unlock()
	return nil
}

// Healthy returns an error while the socket cannot be served: it is kubelet's check "device-plugin" of /healthz.
func (s *Server) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return fmt.Errorf("no device plugins can register: %w", s.failed)
	}
	return nil
}

func (s *Server) setFailed(err error) {
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
}

// listen serves the socket until ctx ends.
func (s *Server) listen(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return err
	}
	if err := removeSockets(s.dir); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(s.dir, SocketName))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, registration{s: s})
	s.setFailed(nil)
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	defer server.Stop()
	err = server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// removeSockets removes the sockets in the directory: that of an earlier agent, and those of plugins, which see it and
// register again.
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Type()&fs.ModeSocket == 0 })
	var errs []error
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// registration is the service Registration.
type registration struct {
	api.UnimplementedRegistrationServer
	s *Server
}

// Register returns when the plugin has returned its options.
func (r registration) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	s, resource := r.s, v1.ResourceName(req.GetResourceName())
	fail := func(code codes.Code, err error) (*api.Empty, error) {
		s.log.Error(err, "A device plugin cannot register", "resource", resource, "endpoint", req.GetEndpoint())
		return nil, status.Error(code, err.Error())
	}
	if err := check(resource, req.GetVersion()); err != nil {
		return fail(codes.InvalidArgument, err)
	}
	if !filepath.IsLocal(req.GetEndpoint()) {
		return fail(codes.InvalidArgument, fmt.Errorf("the endpoint %q is no name of a socket in %s",
			req.GetEndpoint(), s.dir))
	}
	s.node.Measure(devices.Registered{Resource: resource})
	if err := s.serve(ctx, resource, filepath.Join(s.dir, req.GetEndpoint())); err != nil {
		return fail(codes.Unavailable, err)
	}
	return &api.Empty{}, nil
}

// check returns an error unless a plugin of the resource that supports these versions can be served.
func check(resource v1.ResourceName, versions ...string) error {
	if !slices.Contains(versions, api.Version) {
		return fmt.Errorf("the plugin supports the versions %q of the API of device plugins, and the agent %q",
			versions, api.SupportedVersions)
	}
	return devices.CheckResource(resource)
}

// Validate implements [plugins.Handler].
func (s *Server) Validate(p plugins.Plugin) error {
	return check(v1.ResourceName(p.Name), p.Versions...)
}

// Register implements [plugins.Handler]. It returns when the plugin has returned its options. The plugin is served
// until its stream ends, Run returns or Deregister is called. Its error wraps [ErrNotRunning] if the server does not
// run.
func (s *Server) Register(ctx context.Context, p plugins.Plugin) error {
	return s.serve(ctx, v1.ResourceName(p.Name), p.Endpoint)
}

// Deregister implements [plugins.Handler].
func (s *Server) Deregister(p plugins.Plugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for served, cancel := range s.connected {
		if string(served.resource) == p.Name && served.socket == p.Endpoint {
			cancel()
		}
	}
}

// ErrNotRunning means that the server does not run.
var ErrNotRunning = errors.New("the server of device plugins does not run")

// serve connects to the plugin of the resource at the socket, and serves it.
func (s *Server) serve(ctx context.Context, resource v1.ResourceName, socket string) error {
	p, err := Connect(ctx, resource, socket)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		_ = p.Close()
		return ErrNotRunning
	}
	for before, end := range s.connected {
		if before.resource == resource && before.socket == socket {
			p.replaces = append(p.replaces, end)
		}
	}
	running, cancel := context.WithCancel(s.ctx)
	s.connected[p] = cancel
	s.serving.Go(func() {
		defer s.disconnected(p)
		s.log.Info("A device plugin has registered", "resource", resource, "socket", socket)
		if err := s.manager.Serve(running, p); running.Err() == nil {
			s.log.Error(err, "A device plugin has ended; its devices are not given to further pods until it "+
				"registers again", "resource", resource, "socket", socket)
		}
	})
	return nil
}

// disconnected forgets the plugin.
func (s *Server) disconnected(p *Plugin) {
	s.mu.Lock()
	cancel := s.connected[p]
	delete(s.connected, p)
	s.mu.Unlock()
	cancel()
	_ = p.Close()
}
