package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The types of plugins that Kubernetes has.
const (
	TypeCSI    = "CSIPlugin"
	TypeDevice = "DevicePlugin"
	TypeDRA    = "DRAPlugin"
)

// Plugin is what a plugin has told about itself.
type Plugin struct {
	// Type is the type of the plugin, such as [TypeDRA].
	Type string
	// Name is unique for the type: the name of a driver or of a resource. It is not checked; the handler does that.
	Name string
	// Endpoint is the path of the socket at which the plugin serves.
	Endpoint string
	// Versions are the versions of the API, or the gRPC services, that the plugin serves.
	Versions []string
	// Socket is the path of the socket of the registration.
	Socket string
}

func (p Plugin) String() string { return p.Type + " " + p.Name + " at " + p.Endpoint }

// Handler uses the plugins of one type. Its methods are called concurrently for different sockets.
type Handler interface {
	// Validate reports why the plugin cannot be used, such as that its versions are unknown. It has no effect.
	Validate(p Plugin) error
	// Register makes the plugin known. ctx ends when the socket of the plugin is removed or the manager stops. An error
	// is sent to the plugin, and the registration is repeated after a back-off.
	Register(ctx context.Context, p Plugin) error
	// Deregister is called after a Register that has succeeded, when the socket is gone or was created again, or when
	// the plugin did not accept its registration. The plugin may still serve at its endpoint.
	Deregister(p Plugin)
}

// Options are the settings of a [Manager].
type Options struct {
	// CallTimeout is how long each call of a plugin may take. Default 10 s.
	CallTimeout time.Duration
}

// The back-off of registrations is kubelet's.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 2*time.Minute + 2*time.Second
)

// Manager registers the plugins in a directory with the handlers of their types. It is a component of an agent. Make
// one with [New]. It is safe for concurrent use.
type Manager struct {
	dir      string
	handlers map[string]Handler
	opts     Options
	log      logr.Logger
	started  atomic.Bool

	// Tests replace these.
	watch func() (watcher, error)
	dial  func(ctx context.Context, socket string) (registration, error)

	// mu guards sockets, which Run alone changes.
	mu      sync.Mutex
	sockets *sockets
}

var (
	_ lifecycle.Joiner = (*Manager)(nil)
	_ lifecycle.Runner = (*Manager)(nil)
)

// New returns a manager of the plugins in dir, with a handler for each type. It reads nothing.
func New(dir string, handlers map[string]Handler, opts Options) (*Manager, error) {
	var errs []error
	if dir == "" {
		errs = append(errs, errors.New("the directory is empty"))
	}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		if name == "" || handlers[name] == nil {
			errs = append(errs, fmt.Errorf("the handler of type %q is nil, or the type is empty", name))
		}
	}
	if opts.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("a timeout of %v is negative", opts.CallTimeout))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("plugins: %w", errors.Join(errs...))
	}
	if opts.CallTimeout == 0 {
		opts.CallTimeout = 10 * time.Second
	}
	m := &Manager{
		dir: dir, handlers: maps.Clone(handlers), opts: opts, dial: dial,
		watch:   func() (watcher, error) { return fswatch.Open() },
		sockets: newSockets(flow.Backoff{Min: minBackoff, Max: maxBackoff}),
	}
	return m, m.Join(lifecycle.NopNode{})
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "plugins" }

// Join implements [lifecycle.Joiner].
func (m *Manager) Join(node lifecycle.Node) error {
	m.log = node.Logger()
	return nil
}

// Plugins returns the plugins that are registered, sorted by type, name and socket.
func (m *Manager) Plugins() []Plugin {
	m.mu.Lock()
	list := m.sockets.registered()
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b Plugin) int {
		return strings.Compare(a.Type+"\x00"+a.Name+"\x00"+a.Socket, b.Type+"\x00"+b.Name+"\x00"+b.Socket)
	})
	return list
}

// Sockets returns the sockets in the registry, sorted, also of plugins that are not registered.
func (m *Manager) Sockets() (paths []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, s := range m.sockets.byPath {
		if s.there != 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Run registers plugins until ctx ends. It makes the registry if it does not exist, and returns nil. A second call
// returns [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return fmt.Errorf("plugins: %w", runtime.ErrAlreadyRunning)
	}
	r := &run{
		Manager: m, scan: newScan(m.dir), scanned: make(chan scanned), results: make(chan result),
		cancels: map[string]context.CancelFunc{}, watcher: (*fswatch.Watcher)(nil), unwatched: fswatch.ErrClosed,
	}
	return r.loop(ctx)
}
