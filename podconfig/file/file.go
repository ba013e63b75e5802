package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// ErrRunning is returned by [Source.Run] while another call of it goes on.
var ErrRunning = errors.New("the file source is already running")

// Options are the settings of a [Source]; the zero value is good.
type Options struct {
	// Logger; the zero value discards. It is used from several goroutines.
	Logger logr.Logger
	// Name of the source in the stream of changes. Default: "file".
	Name string
	// CheckFrequency is the time between two full looks, which find what the kernel
	// does not report: changes behind symbolic links and on network file systems.
	// Default: 20 s, the fileCheckFrequency of kubelet.
	CheckFrequency time.Duration
	// Lenient accepts unknown and duplicated fields with a warning in the log.
	Lenient bool
	// Allow are the references to API objects that pods may have. Default: none.
	Allow manifest.AllowedRefs
	// Objects reads the secrets and config maps among the manifests, see
	// [Source.Objects]. It sets Allow.Env and Allow.PullSecrets. Without it, secrets and
	// config maps are errors.
	Objects bool
	// Await has a path that does not exist say nothing, until it has existed: what lies
	// on a disk that is mounted late is not taken for empty. Default: it holds no
	// pods, as with kubelet. A path that goes away later holds none in either case.
	Await bool
	// Problem, if not nil, is told of each problem once for as long as it lasts,
	// with the path of the file or directory it is about, and with a nil error when
	// it is gone. It runs in the goroutine of [Source.Run] and must not block.
	Problem func(path string, err error)
}

// Source reads pods from a directory of manifests or from a single file.
type Source struct {
	path    string
	opts    Options
	running atomic.Bool
	// store and onlyObjects are those of state.
	store       *objects.Store
	onlyObjects bool
	// restored are the pods that were restored of this source.
	restored []*v1.Pod
	// state outlives a run, so that the last good pods do.
	state  *state
	kernel kernel
}

// New returns a source of the pods at the path, which need not exist yet. It does
// nothing until it is run.
func New(path string, opts Options) *Source {
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	if opts.Name == "" {
		opts.Name = "file"
	}
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = 20 * time.Second
	}
	if opts.Objects {
		opts.Allow.Env, opts.Allow.PullSecrets = true, true
	}
	s := &Source{path: filepath.Clean(path), opts: opts, kernel: inotify()}
	if opts.Objects {
		s.store = objects.New()
	}
	return s
}

// Name returns the name of the source.
func (s *Source) Name() string { return s.opts.Name }

// Restored implements [podconfig.SourceRestorer]: while a file is broken of which no good version
// is known, restored pods that no other file has go on, since they may be its.
func (s *Source) Restored(pods []*v1.Pod) { s.restored = pods }

var _ podconfig.SourceRestorer = (*Source)(nil)

// Delays between something that happened and the look at it.
const (
	// settle is how long events are gathered: manifests tend to come in numbers.
	settle = 10 * time.Millisecond
	// ripe is the age from which a file that does not parse is called broken; a
	// younger one may be half written.
	ripe = 250 * time.Millisecond
	// holdBack is how long the first pods wait for files that may be half written.
	holdBack = time.Second
)

// Run reads the manifests and hands over their pods whenever they change, until
// ctx ends; then it returns nil. The first are held back, for a second at most, while a
// file may be half written. A path that does not exist holds no pods, but see
// [Options.Await]. A path that cannot be read says nothing: the pods known so far stay, and if there never
// were any, the source counts as unseen. The only other errors are [ErrRunning]
// and that of a sink without a node name.
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.running.Store(false)
	if s.state == nil {
		node := sink.NodeName()
		if node == "" && !s.onlyObjects {
			return fmt.Errorf("file source %s: no node name given; set podconfig.Options.NodeName", s.path)
		}
		s.state = newState(s.path, node, s.opts)
		s.state.store, s.state.onlyObjects = s.store, s.onlyObjects
		s.state.restored = s.restored
	}
	w := &watch{path: s.path, logger: s.opts.Logger, kernel: s.kernel}
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
		case event, ok := <-w.events():
			if !ok {
				w.close()
			} else if !w.concerns(event.Name) {
				continue
			}
			s.state.suspect(event.Name)
			w.gather(ctx, settle, s.state.suspect)
		case err, ok := <-w.errors():
			if ok {
				s.opts.Logger.Info("Events of the manifest directory were lost; looking at all of it", "path", s.path, "error", err.Error())
			}
			w.close() // what is watched may be among what was lost
			s.state.suspectAll()
		}
		// The watch comes before the look, so that nothing falls between the two.
		w.ensure()
		changed, again := s.state.look(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		// One that may be half written is waited for once: what comes first is taken for all
		// there is.
		held := !delivered && again > 0 && time.Since(began) < holdBack
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
