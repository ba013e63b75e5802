package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Errors of [Driver.Run].
var (
	// ErrAlreadyRunning is returned for a second call.
	ErrAlreadyRunning = errors.New("the driver runs or has run already")
	// ErrExit is returned if a [Fault] with Exit has ended the driver. The sockets are still there, as those of a
	// process that was killed.
	ErrExit = errors.New("the driver has ended by a fault")
)

// Driver is a CSI driver. It is safe for concurrent use.
type Driver struct {
	opts    Options
	ready   chan struct{} // closed when the sockets are there
	stopped chan struct{} // closed when no call is accepted any more; calls that hang return
	exit    chan struct{} // has a value after a fault with Exit

	mu       sync.Mutex // guards the following; nothing is called with it
	running  bool
	settings Settings
	calls    []Call
	faults   []*fault
	injected int             // faults, in all
	busy     map[string]bool // IDs of volumes for which there is a call
	notified chan struct{}   // closed and replaced by each answer of a CO to the registration
	answers  []*registerapi.RegistrationStatus

	callsFile callsFile
	// volumes is the state of the volumes, which is on disk.
	volumes store
}

// New returns a driver.
func New(opts Options) (*Driver, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("csidriver: %w", err)
	}
	return &Driver{
		opts: opts, settings: opts.Settings.clone(), busy: map[string]bool{},
		ready: make(chan struct{}), stopped: make(chan struct{}), exit: make(chan struct{}, 1),
		notified: make(chan struct{}), volumes: store{path: statePath(opts.Dir)},
	}, nil
}

// Run serves the services until the context is done or a fault ends the driver, and waits for the calls that are under
// way. The volumes stay as they are. Errors: [ErrAlreadyRunning], [ErrExit], and those of the sockets and of the state.
func (d *Driver) Run(ctx context.Context) error {
	d.mu.Lock()
	again := d.running
	d.running = true
	d.mu.Unlock()
	if again {
		return ErrAlreadyRunning
	}
	if err := os.MkdirAll(d.opts.Dir, 0o755); err != nil {
		return err
	}
	if err := d.volumes.load(); err != nil {
		return err
	}
	if d.opts.KeepCalls {
		calls, err := d.callsFile.open(filepath.Join(d.opts.Dir, "calls.jsonl"))
		if err != nil {
			return err
		}
		defer d.callsFile.f.Close()
		d.mu.Lock()
		d.calls = calls
		d.mu.Unlock()
	}
	return d.serve(ctx)
}

// server serves at one socket.
type server interface {
	Serve(net.Listener) error
	stop()
}

type grpcServer struct{ *grpc.Server }

func (s grpcServer) Serve(l net.Listener) error {
	if err := s.Server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

func (s grpcServer) stop() { s.Stop() } // waits for the calls

type httpServer struct{ *http.Server }

func (s httpServer) Serve(l net.Listener) error {
	if err := s.Server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s httpServer) stop() { _ = s.Close() }

// servers returns what is served at which sockets. The registration is the last, since it invites a CO.
func (d *Driver) servers() (servers []server, sockets []string) {
	options := []grpc.ServerOption{grpc.WaitForHandlers(true), grpc.UnaryInterceptor(d.intercept),
		grpc.ForceServerCodecV2(garbageCodec{})}
	services := grpc.NewServer(options...)
	csi.RegisterIdentityServer(services, identity{d: d})
	csi.RegisterControllerServer(services, controller{d: d})
	csi.RegisterNodeServer(services, node{d: d})
	servers, sockets = []server{grpcServer{services}}, []string{d.opts.Socket}
	if d.opts.Control != "" {
		servers, sockets = append(servers, httpServer{d.controlServer()}), append(sockets, d.opts.Control)
	}
	if d.opts.Registry != "" {
		registration := grpc.NewServer(options...)
		registerapi.RegisterRegistrationServer(registration, registrar{d: d})
		servers, sockets = append(servers, grpcServer{registration}), append(sockets, d.opts.registration())
	}
	return servers, sockets
}

func (d *Driver) serve(ctx context.Context) error {
	servers, sockets := d.servers()
	ended := make(chan error, len(servers)) // has room for the results of all
	started, waiting := 0, 0
	var err error
	for i, server := range servers {
		listener, failed := listen(sockets[i])
		if failed != nil {
			err = failed
			break
		}
		started, waiting = started+1, waiting+1
		go func() { ended <- server.Serve(listener) }()
	}
	if err == nil {
		close(d.ready)
		select {
		case <-ctx.Done():
		case <-d.exit:
			err = ErrExit
		case err = <-ended:
			waiting--
		}
	}
	if !errors.Is(err, ErrExit) {
		for _, socket := range slices.Backward(sockets[:started]) { // the registration ends first
			_ = os.Remove(socket)
		}
	}
	close(d.stopped)
	for _, server := range servers {
		server.stop()
	}
	for range waiting {
		err = errors.Join(err, <-ended)
	}
	return err
}

// listen makes a socket, in place of one that is there.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	return listener, nil
}

// Ready returns a channel that is closed when the sockets are served.
func (d *Driver) Ready() <-chan struct{} { return d.ready }

// Name returns the name of the driver.
func (d *Driver) Name() string { return d.opts.Name }

// Socket returns the path at which the services are served.
func (d *Driver) Socket() string { return d.opts.Socket }

// Mounts reports whether volumes are mounted. Otherwise they are linked.
func (d *Driver) Mounts() bool { return !d.opts.Links }

// Settings returns what the driver reports.
func (d *Driver) Settings() Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings.clone()
}

// Update changes what the driver reports. The function must not call the driver.
func (d *Driver) Update(change func(*Settings)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.settings.clone()
	change(&changed)
	d.settings = changed.clone()
}

// registrar is the service of the registration.
type registrar struct {
	registerapi.UnsafeRegistrationServer
	d *Driver
}

func (r registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.d.opts.Name, Endpoint: r.d.opts.Endpoint,
		SupportedVersions: r.d.opts.Versions}, nil
}

func (r registrar) NotifyRegistrationStatus(_ context.Context,
	status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.answers = append(r.d.answers, status)
	close(r.d.notified)
	r.d.notified = make(chan struct{})
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Registered waits until the CO has notified the driver n times of the result of its registration, and returns the
// last result.
func (d *Driver) Registered(ctx context.Context, n int) (*registerapi.RegistrationStatus, error) {
	for {
		d.mu.Lock()
		notified, answers := d.notified, d.answers
		d.mu.Unlock()
		if len(answers) >= max(n, 1) {
			return answers[len(answers)-1], nil
		}
		select {
		case <-notified:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
