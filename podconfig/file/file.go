package file

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Source]. The zero value is valid.
type Options struct {
	// Logger. Problems are logged by the Mux. It is used from several goroutines. Default: that of package slog.
	Logger logr.Logger
	// Name of the source. Default: "file".
	Name string
	// CheckFrequency is the time between two periodic scans. They find the changes that
	// the kernel does not report. Default: 20 s, kubelet's fileCheckFrequency.
	CheckFrequency time.Duration
	// AsKubelet reads what kubelet reads, for an agent in the place of a kubelet: unknown and duplicated fields and all
	// documents of a file but the first are ignored, and lists are refused, see [manifest.Options]. What is ignored is
	// a problem that wraps a [manifest.Warning], and is passed to the sink's Warn.
	AsKubelet bool
	// Allow are the references to API objects that pods may have. Default: none.
	Allow manifest.AllowedRefs
	// KubeletVersion is the version of the kubelet whose UIDs pods get, see [manifest.Options].
	KubeletVersion string
	// Objects reads the secrets and config maps among the manifests, see
	// [Source.Objects]. It sets Allow.Env and Allow.PullSecrets. Without it, secrets and
	// config maps are errors.
	Objects bool
	// Await delivers nothing until the path has existed, for a path on a disk that is
	// mounted late. By default, a path that does not exist holds no pods, as with
	// kubelet. A path that is removed later holds no pods in either case.
	Await bool
	// Problem receives each problem once while it lasts, with the path of the file or
	// directory that it is about. When the problem is gone, it receives a nil error. It
	// is called by the goroutine of [Source.Run] and must not block. Problems are also
	// passed to the sink's Reject, so that the Mux logs them.
	Problem func(path string, err error)
}

// Source reads pods from a directory of manifests or from a single file. It implements
// [podconfig.Source].
type Source struct {
	path    string
	opts    Options
	running atomic.Bool
	// store receives the secrets and config maps. It is nil if none are read.
	store *objects.Store
	// onlyObjects refuses pods.
	onlyObjects bool
	// state outlives a run, so that the last valid pods do. It is nil until the first.
	state  *state
	kernel kernel
	reader *safefile.Reader
}

var _ podconfig.Source = (*Source)(nil)

// New returns a source of the pods at the path, which need not exist yet. It does no
// I/O.
func New(path string, opts Options) *Source {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Name == "" {
		opts.Name = "file"
	}
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = 20 * time.Second
	}
	if opts.Objects {
		opts.Allow.Env, opts.Allow.PullSecrets = true, true
	}
	s := &Source{path: filepath.Clean(path), opts: opts, kernel: inotify(), reader: newReader()}
	if opts.Objects {
		s.store = objects.New()
	}
	return s
}

// Name returns the name of the source.
func (s *Source) Name() string { return s.opts.Name }

// Delays between an event and the scan.
const (
	// gatherTime is how long events are gathered: manifests are often written in
	// batches.
	gatherTime = 10 * time.Millisecond
	// minAge is the age from which an invalid file counts as broken. A younger file may
	// be half written.
	minAge = 250 * time.Millisecond
	// awayTime is the time for which the pods of a file are withdrawn that was deleted and made
	// again within gatherTime. The reader of the stream receives two changes only if it has
	// received the first one before the second one is delivered.
	awayTime = 100 * time.Millisecond
	// readTimeout is the time limit of a read: of the directory, of a file, and of the calls that watch them.
	readTimeout = 5 * time.Second
	// maxFirstDelay is how long the first pods wait for files that may be half written.
	maxFirstDelay = time.Second
)

// Run reads the manifests and delivers their pods whenever they change, until ctx
// ends. Then it returns nil. The first delivery waits, for a second at most, while a
// file may be half written. A path that does not exist holds no pods, but see
// [Options.Await]. A path that cannot be read delivers nothing: pods that were read
// before stay.
//
// Run returns an error that wraps [runtime.ErrAlreadyRunning] while another call runs,
// and an error if the sink has no node name.
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("file source %s: %w", s.path, runtime.ErrAlreadyRunning)
	}
	defer s.running.Store(false)
	if s.state == nil {
		node := sink.NodeName()
		if node == "" && !s.onlyObjects {
			return fmt.Errorf("file source %s: no node name given; set podconfig.Options.NodeName", s.path)
		}
		s.state = newState(s.path, node, s.opts)
		s.state.store, s.state.onlyObjects, s.state.reader = s.store, s.onlyObjects, s.reader
		s.state.restored = sink.Restored()
	}
	s.state.sink = sink
	w := &watch{path: s.path, logger: s.opts.Logger, kernel: s.kernel, reader: s.reader}
	defer w.close()

	delivered, began := false, time.Now()
	period := time.NewTimer(s.opts.CheckFrequency)
	defer period.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-soon.C:
		case <-period.C:
		case changes := <-w.watcher.Changes():
			if !w.take(changes, s.state) {
				continue
			}
			w.gather(ctx, gatherTime, s.state)
		}
		// The watch comes before the scan, so that no change falls between the two.
		w.ensure(ctx)
		changed, again := s.state.scan(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		// The first delivery is taken for the complete list, so it waits for a file that may
		// be half written.
		held := !delivered && again > 0 && time.Since(began) < maxFirstDelay
		if s.state.known && !held && (changed || !delivered) {
			sink.Set(s.state.pods())
			delivered = true
		}
		period.Reset(s.opts.CheckFrequency)
		soon.Stop()
		if again > 0 {
			soon.Reset(again)
		}
	}
}
