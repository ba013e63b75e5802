package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Manager]. Defaults are kubelet's.
type Options struct {
	// Dir is the directory with the logs of all pods, such as /var/log/pods. Logs elsewhere are not rotated. Required.
	Dir string
	// MaxSize is the size, in bytes, at which a log is rotated. Default: 10 MiB.
	MaxSize int64
	// MaxFiles is the number of files that a container has at most: the log and rotated ones. At least 2. Default: 5.
	MaxFiles int
	// RuntimeRotates means that the runtime rotates its logs itself before they exceed MaxSize, such as runtime/process
	// with its option LogMaxSize. A manager then compresses rotated files, and rotates only a log that has become
	// larger.
	RuntimeRotates bool
	// MaxWorkers is the number of files that are compressed at a time. Default: 1.
	MaxWorkers int
	// Interval is the time between two reads of the size of a log that the kernel cannot watch. Default: 10 s.
	Interval time.Duration
	watch    func() (watcher, error) // of a test
}

var (
	_ lifecycle.Joiner         = (*Manager)(nil)
	_ lifecycle.Runner         = (*Manager)(nil)
	_ lifecycle.RunningHandler = (*Manager)(nil)
	_ lifecycle.EndedHandler   = (*Manager)(nil)
	_ lifecycle.GoneHandler    = (*Manager)(nil)
)

// Manager rotates the logs of running containers. It is safe for concurrent use.
type Manager struct {
	rt      runtime.LogReopener
	opts    Options
	node    lifecycle.Node
	log     logr.Logger
	workers *semaphore.Weighted

	mu  sync.Mutex
	ran bool
	// start starts the goroutine that follows a log. It is nil unless Run runs.
	start func(l *log)
	// limited means that the kernel watches no further log, which was logged.
	limited bool
	// logs are those of containers that run, or ran when their pod was observed last, by path. byPod has their paths.
	logs  map[string]*log
	byPod map[types.UID][]string
}

// watcher is the part of a [fswatch.Watcher] that a manager uses.
type watcher interface {
	Add(path string) error
	Remove(path string)
	Changes() <-chan fswatch.Changes
	Close()
}

// New returns a manager. It does nothing before [Manager.Run].
func New(rt runtime.LogReopener, opts Options) (*Manager, error) {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("logs: "+what))
		}
	}
	check(rt != nil, "a runtime.LogReopener is required")
	check(filepath.IsAbs(opts.Dir), "Options.Dir must be an absolute path")
	check(opts.MaxSize >= 0, "Options.MaxSize must not be below 0")
	check(opts.MaxFiles == 0 || opts.MaxFiles >= 2, "Options.MaxFiles must be at least 2")
	check(opts.MaxWorkers >= 0, "Options.MaxWorkers must not be below 0")
	check(opts.Interval >= 0, "Options.Interval must not be below 0")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts.MaxSize = cmp.Or(opts.MaxSize, 10<<20)
	opts.MaxFiles = cmp.Or(opts.MaxFiles, 5)
	opts.MaxWorkers = cmp.Or(opts.MaxWorkers, 1)
	opts.Interval = cmp.Or(opts.Interval, 10*time.Second)
	if opts.watch == nil {
		opts.watch = func() (watcher, error) { return fswatch.Open() }
	}
	opts.Dir = filepath.Clean(opts.Dir)
	m := &Manager{
		rt: rt, opts: opts,
		workers: semaphore.NewWeighted(int64(opts.MaxWorkers)), logs: map[string]*log{},
		byPod: map[types.UID][]string{},
	}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. Each rotation is recorded as a [runtime.KindRotateLog], and so is the first of
// rotations that fail one after the other.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log = node, node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "container logs" }

// Run rotates logs until ctx ends. Its only error wraps [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	w, err := m.opts.watch()
	if err != nil {
		m.log.Error(err, "The kernel does not report writes to logs: their sizes are read at intervals",
			"interval", m.opts.Interval)
		w = (*fswatch.Watcher)(nil)
	}
	defer w.Close()
	var following sync.WaitGroup
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return fmt.Errorf("logs: %w", runtime.ErrAlreadyRunning)
	}
	m.ran = true
	m.start = func(l *log) { following.Go(func() { m.follow(ctx, w, l, &following) }) }
	for _, l := range m.logs {
		m.begin(l)
	}
	m.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case changes := <-w.Changes():
			m.mu.Lock()
			for path := range changes.Ops {
				if l := m.logs[path]; l != nil {
					m.begin(l)
				}
			}
			if changes.Lost != nil {
				for _, l := range m.logs {
					m.begin(l)
				}
			}
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	m.start = nil
	m.mu.Unlock()
	following.Wait()
	return nil
}

// begin has the log followed, because it may have grown. The caller holds mu.
func (m *Manager) begin(l *log) {
	switch {
	case m.start == nil:
	case l.active:
		l.again = true
	default:
		l.active = true
		m.start(l)
	}
}

// Running implements [lifecycle.RunningHandler].
func (m *Manager) Running(_ context.Context, pod *v1.Pod, observed *runtime.PodStatus) error {
	var found []*log
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.State == runtime.ContainerRunning && c.LogPath != "" {
			found = append(found, &log{ref: runtime.RefOf(pod), container: c.Name, id: c.ID,
				path: filepath.Clean(c.LogPath), ended: make(chan struct{})})
		}
	}
	m.set(pod.UID, found)
	return nil
}

// Ended implements [lifecycle.EndedHandler].
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.set(req.Pod.UID, nil)
	return nil
}

// Gone implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	m.set(req.Pod.UID, nil)
	return nil
}

// set makes these the logs of the pod.
func (m *Manager) set(uid types.UID, found []*log) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, path := range m.byPod[uid] {
		if !slices.ContainsFunc(found, func(l *log) bool { return l.path == path && l.id == m.logs[path].id }) {
			close(m.logs[path].ended)
			delete(m.logs, path)
		}
	}
	delete(m.byPod, uid)
	for _, l := range found {
		if m.logs[l.path] == nil {
			m.logs[l.path] = l
			m.begin(l)
		} else if m.logs[l.path].ref.UID != uid {
			continue // the runtime reports one path for two pods
		}
		if !slices.Contains(m.byPod[uid], l.path) {
			m.byPod[uid] = append(m.byPod[uid], l.path)
		}
	}
}
