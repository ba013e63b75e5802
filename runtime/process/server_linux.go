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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// Server is a CRI server whose containers are host processes. Its methods are safe for
// concurrent use.
type Server struct {
	opts Options
	// ready is closed when the socket accepts calls.
	ready chan struct{}
	// cancel ends run, done is closed when run has returned, and err is what it has returned. Open sets
	// the first.
	cancel context.CancelFunc
	done   chan struct{}
	err    error

	events  broadcaster
	warned  onceEach
	streams *streamServer
	host    hostFacts
	ips     []string
	cgroups *cgroupRoot
	boot    string
	// limitsPods is what LimitsPods has returned at the start.
	limitsPods bool
	// startPatience and huntPatience are the constants of these names, except in tests.
	startPatience, huntPatience time.Duration
	// pass is [supervise.Hunt.Pass], except in a test with processes that do not end.
	pass     func(*supervise.Hunt) (done bool)
	environs *supervise.Environs
	// huntUntil is when recover does not wait for processes any more.
	huntUntil time.Time

	// life ends when run has to return. tasks are the goroutines that run waits for. run
	// sets life before anything uses it.
	life  context.Context
	tasks sync.WaitGroup

	// syncing holds a token for each container whose records are being synced.
	syncing                     chan struct{}
	sandboxesDir, containersDir dirSync

	reaching sync.Mutex // held while ACLs are changed
	linksMu  sync.Mutex // held while links are changed
	// linkOwners has the ID of the sandbox of each record of a link that was written or read,
	// by the record's file. linksMu guards it.
	linkOwners map[string]string

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*image
}

// Init must be called first in main, whatever the arguments of the program are, unless
// [Options].Supervisor names another program. It returns
// at once, except in a process that a [Server] has started to supervise a container: there
// it supervises the container and exits the process. A test binary that starts containers
// calls Init first in TestMain.
//
// The packages of a program are initialised before main, so they are initialised again for
// each container. A program with many packages has a small one as [Options].Supervisor.
func Init() { supervise.Init() }

// CleanUp ends the containers whose directory was deleted while they ran, and removes the cgroups that are left
// of them. It returns the number of pods. Where no cgroups can be made, nothing is found. The error is
// [ErrInUse] if a server runs, also one whose directory was deleted. It does not make the directory. Containers that
// the next server adopts stay.
func CleanUp(ctx context.Context, opts Options) (pods int, err error) {
	if err := opts.validate(); err != nil {
		return 0, err
	}
	opts.setDefaults()
	stays := func(string) bool { return false }
	switch _, err := os.Stat(opts.Dir); {
	case err == nil:
		lock, err := safefile.LockSoon(ctx, filepath.Join(opts.Dir, supervise.LockFile))
		if errors.Is(err, safefile.ErrLocked) {
			return 0, fmt.Errorf("%w %s", ErrInUse, opts.Dir)
		}
		if err != nil {
			return 0, fmt.Errorf("process: %w", err)
		}
		defer safefile.Unlock(lock)
		stays = func(sandbox string) bool { // the next server adopts it
			_, err := os.Stat(sandboxFile(opts.Dir, sandbox))
			return !errors.Is(err, fs.ErrNotExist)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("process: %w", err)
	}
	cgroups := findCgroups(&opts)
	defer cgroups.removeRoot()
	if pods, err = cgroups.removeLeft(ctx, stays); err != nil {
		return pods, fmt.Errorf("process: %w", err)
	}
	return pods, nil
}

// Open finds the containers in the directory and starts a server, which accepts calls when Open
// returns. The server runs until [Server.Close]; ctx is for Open only. So a program opens the server before its agent
// runs, and closes it after the agent has stopped.
//
// The error is [ErrNoInit], joins the errors of all options that are not valid, wraps
// [ErrInUse] if another server uses the directory, or is one of the file system, of a socket, or of ctx.
func Open(ctx context.Context, opts Options) (*Server, error) {
	s, err := newServer(opts)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// open runs the server in a goroutine, and returns when it is ready or has ended.
func (s *Server) open(ctx context.Context) error {
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = s.run(rctx)
	}()
	select {
	case <-s.ready:
		return nil
	case <-s.done:
		cancel()
		return s.err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("process: opening %s: %w", s.opts.Dir, context.Cause(ctx)), s.Close())
	}
}

// Close ends the server: it cancels the calls that have not returned, and returns when they have. The
// containers keep running; the next server with the directory finds them, in this process or in another. If the
// server has failed before, Close returns the error. Close may be called again.
func (s *Server) Close() error {
	s.cancel()
	<-s.done
	return s.err
}

// Done returns a channel that is closed when the server has ended, by itself or because of [Server.Close].
func (s *Server) Done() <-chan struct{} { return s.done }

// newServer returns a server that has yet to be opened. It does no I/O.
func newServer(opts Options) (*Server, error) {
	if opts.Supervisor == "" && !supervise.Initialized() {
		return nil, ErrNoInit
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	return &Server{
		opts:          opts,
		startPatience: startPatience,
		huntPatience:  huntPatience,
		pass:          (*supervise.Hunt).Pass,
		environs:      supervise.NewEnvirons(),
		syncing:       make(chan struct{}, maxSyncs),
		sandboxesDir:  dirSync{path: filepath.Join(opts.Dir, "sandboxes")},
		containersDir: dirSync{path: filepath.Join(opts.Dir, "containers")},
		ready:         make(chan struct{}),
		done:          make(chan struct{}),
		sandboxes:     map[string]*sandbox{},
		containers:    map[string]*container{},
		images:        map[string]*image{},
	}, nil
}

// Endpoint returns the endpoint of the server: "unix://<Dir>/cri.sock".
func (s *Server) Endpoint() string { return "unix://" + s.socket() }

func (s *Server) socket() string { return filepath.Join(s.opts.Dir, "cri.sock") }

// run finds the containers in the directory and serves until ctx ends.
func (s *Server) run(ctx context.Context) (err error) {
	if err := safefile.MakeDir(s.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	lock, err := safefile.LockSoon(ctx, filepath.Join(s.opts.Dir, supervise.LockFile))
	if errors.Is(err, safefile.ErrLocked) {
		return fmt.Errorf("%w %s", ErrInUse, s.opts.Dir)
	}
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	defer safefile.Unlock(lock)
	ctx, cancel := context.WithCancel(ctx)
	s.life = ctx
	defer func() {
		cancel()
		s.tasks.Wait()
		if s.cgroups != nil {
			s.cgroups.removeRoot()
		}
	}()

	s.findHost()
	if err := s.recover(); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return fmt.Errorf("process: finding the containers in %s: %w", s.opts.Dir, err)
	}
	s.limitsPods = s.LimitsPods()
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
		grpc.ChainUnaryInterceptor(s.recoverUnary), grpc.ChainStreamInterceptor(s.recoverStream),
	)
	criv1.RegisterRuntimeServiceServer(server, &runtimeService{Server: s})
	criv1.RegisterImageServiceServer(server, &imageService{Server: s})

	failed := make(chan error, 2) // one value of each server
	s.tasks.Go(func() { failed <- s.streams.serve() })
	s.tasks.Go(func() { failed <- server.Serve(listener) })
	s.opts.Logger.V(1).Info("Serving containers that are host processes", "endpoint", s.Endpoint())
	close(s.ready)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel() // ends the event streams and the goroutines that watch supervisors
	s.streams.close()
	server.Stop()
	if err != nil {
		return fmt.Errorf("process: serving: %w", err)
	}
	return nil
}

// maxMessageSize is that of kubelet and containerd.
const maxMessageSize = 16 << 20

// listen listens on a socket that only this user can open. The directory is locked, so a
// socket that exists is that of a server that has ended.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Until then, the mode of the directory keeps other users out.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// runtimeService implements CRI's RuntimeService.
type runtimeService struct {
	criv1.UnimplementedRuntimeServiceServer
	*Server
}

// imageService implements CRI's ImageService.
type imageService struct {
	criv1.UnimplementedImageServiceServer
	*Server
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q does not exist", kind, id)
}

// ifFound calls f with an object that was found. Nothing has to be stopped or removed of an object that
// does not exist.
func ifFound[T any](object *T, err error, f func(*T) error) error {
	switch {
	case status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	}
	return f(object)
}

// find returns an object by its ID or by a unique prefix of it, as users of crictl give
// it.
func find[T any](all map[string]*T, kind, id string) (*T, error) {
	if id == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the ID of the %s is empty", kind)
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

// warn logs each warning once in the life of the server, the usual ones with verbosity 1.
func (s *Server) warn(found *findings, about ...any) {
	for _, w := range found.warnings {
		if s.warned.first(w) {
			log := s.opts.Logger
			if found.usual[w] {
				log = log.V(1)
			}
			log.Info("Something that a pod requests has no effect; logged once",
				append([]any{"warning", w}, about...)...)
		}
	}
}

// onceEach recognises texts that it has not seen before. After 1000 texts it starts again,
// so that it does not grow without bound.
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
