package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/filelock"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// Server is a CRI server whose containers are host processes; see the package's
// documentation.
type Server struct {
	opts Options
	ran  atomic.Bool
	// ready is closed when the socket takes calls.
	ready chan struct{}

	events  broadcaster
	warned  onceEach
	streams *streamServer
	host    hostFacts
	ips     []string
	cgroups *cgroupRoot
	boot    string
	// startPatience is the constant of that name, but in tests.
	startPatience time.Duration

	// life ends when Run is to return; tasks are the goroutines that it waits for. Both
	// are set by Run before anything uses them.
	life  context.Context
	tasks sync.WaitGroup

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*image
}

// Init must be called first in main, before flags are parsed and before anything is
// started, whatever the arguments of the program are. The server executes the
// program again to supervise a container, and there Init does not return; otherwise
// it returns at once. A test binary calls it first in TestMain.
//
// What the packages of the program do when they are initialised is done before Init,
// and so again for each container.
func Init() { supervise.Init() }

// New returns a server that is to be run. It does no I/O. The error is [ErrNoInit],
// or names every option that is wrong.
func New(opts Options) (*Server, error) {
	if !supervise.Initialized() {
		return nil, ErrNoInit
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	return &Server{
		opts:          opts,
		startPatience: startPatience,
		ready:         make(chan struct{}),
		sandboxes:     map[string]*sandbox{},
		containers:    map[string]*container{},
		images:        map[string]*image{},
	}, nil
}

// Endpoint is where the server is found: "unix://<Dir>/cri.sock".
func (s *Server) Endpoint() string { return "unix://" + s.socket() }

func (s *Server) socket() string { return filepath.Join(s.opts.Dir, "cri.sock") }

// Ready returns a channel that is closed when the socket takes calls. Clients need
// not wait for it, if they try again as those of gRPC do.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run finds the containers that are there, and serves until ctx ends. Calls under
// way are then cancelled; containers go on running, and another Run of another
// Server on the same directory, in this process or in another, finds them. It returns nil when ctx
// has ended, and [runtime.ErrAlreadyRunning], [ErrInUse] or an error of the file system or of a socket.
func (s *Server) Run(ctx context.Context) (err error) {
	if s.ran.Swap(true) {
		return fmt.Errorf("process: %w", runtime.ErrAlreadyRunning)
	}
	if err := os.MkdirAll(s.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	lock, err := supervise.Lock(s.opts.Dir)
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("%w %s", ErrInUse, s.opts.Dir)
	}
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	defer filelock.Unlock(lock)
	ctx, cancel := context.WithCancel(ctx)
	s.life = ctx
	defer func() {
		cancel()
		s.tasks.Wait()
	}()

	s.findHost()
	if err := s.recover(); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return fmt.Errorf("process: finding the containers that are there: %w", err)
	}
	if s.streams, err = newStreamServer(s); err != nil {
		return fmt.Errorf("process: serving streams: %w", err)
	}
	defer s.streams.close()

	listener, err := listen(s.socket())
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageSize), grpc.MaxSendMsgSize(maxMessageSize),
		grpc.WaitForHandlers(true),
	)
	criv1.RegisterRuntimeServiceServer(server, &runtimeService{Server: s})
	criv1.RegisterImageServiceServer(server, &imageService{Server: s})

	failed := make(chan error, 2) // one of each server
	s.tasks.Go(func() { failed <- s.streams.serve() })
	s.tasks.Go(func() { failed <- server.Serve(listener) })
	s.opts.Logger.Info("Serving containers that are host processes", "endpoint", s.Endpoint())
	close(s.ready)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel() // ends the streams of events and the watching of supervisors
	s.streams.close()
	server.Stop()
	if err != nil {
		return fmt.Errorf("process: serving: %w", err)
	}
	return nil
}

// maxMessageSize is kubelet's and containerd's.
const maxMessageSize = 16 << 20

// listen listens on a socket that only this user can open. The directory was locked,
// so a socket that is there is a dead server's.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// The directory keeps others out until then.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// runtimeService is the server as CRI has it.
type runtimeService struct {
	criv1.UnimplementedRuntimeServiceServer
	*Server
}

// imageService is the server as CRI has it.
type imageService struct {
	criv1.UnimplementedImageServiceServer
	*Server
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q does not exist", kind, id)
}

// find looks an object up by its ID, or by the beginning of it if that is unique, as
// people give it to crictl.
func find[T any](all map[string]*T, kind, id string) (*T, error) {
	if id == "" {
		return nil, status.Errorf(codes.InvalidArgument, "no %s is named", kind)
	}
	if found, ok := all[id]; ok {
		return found, nil
	}
	var found *T
	for other, o := range all {
		if len(other) > len(id) && other[:len(id)] == id {
			if found != nil {
				return nil, status.Errorf(codes.InvalidArgument, "%q is the beginning of more than one %s", id, kind)
			}
			found = o
		}
	}
	if found == nil {
		return nil, notFound(kind, id)
	}
	return found, nil
}

func (s *Server) sandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.sandboxes, "sandbox", id)
}

func (s *Server) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.containers, "container", id)
}

// warn logs a warning once in the life of the server, however many pods it is about.
func (s *Server) warn(warnings []string, about ...any) {
	for _, w := range warnings {
		if s.warned.first(w) {
			s.opts.Logger.Info("Not everything that was asked for can be had; said once", append([]any{"warning", w}, about...)...)
		}
	}
}

// onceEach tells what was not seen before. It forgets all when it has seen 1000, lest it grow
// with texts that differ.
type onceEach struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (o *onceEach) first(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[text] {
		return false
	}
	if o.seen == nil || len(o.seen) >= 1000 {
		o.seen = map[string]bool{}
	}
	o.seen[text] = true
	return true
}
