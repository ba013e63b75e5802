package file

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// state is the state of a source: its files and their content. One goroutine owns it. While that
// goroutine waits in readAll, other goroutines read the state, and each of them writes
// to one manifestFile.
type state struct {
	path string
	node string
	opts Options
	// store receives the secrets and config maps. It is nil if none are read.
	store *objects.Store
	// onlyObjects refuses pods.
	onlyObjects bool

	// known is set after the first scan that could read the path.
	known bool
	// files by path.
	files map[string]*manifestFile
	// suspects are the paths of events. The next scan reads them even if they look
	// unchanged.
	suspects map[string]bool
	// deleted are the paths of files that were deleted since the last scan.
	deleted map[string]bool
	// union are the pods of all files, objects the secrets and config maps.
	union   union[*v1.Pod]
	objects union[metav1.Object]
	// restored are the restored pods that may be from a file that has not been valid
	// yet.
	restored []*v1.Pod
	// reader reads what is at the path.
	reader *safefile.Reader
	// sink is that of the present run of the source.
	sink podconfig.Sink
	// problems are the texts of the problems that last, by subject.
	problems map[string]string
	// ignored are the names of the files that were logged as not read. The empty name is
	// the path itself.
	ignored map[string]bool
}

func newState(path, node string, opts Options) *state {
	return &state{
		path: path, node: node, opts: opts, reader: newReader(), sink: podconfig.SinkBase{},
		union: newPodUnion(), objects: newObjectUnion(),
		files: map[string]*manifestFile{}, suspects: map[string]bool{}, deleted: map[string]bool{},
		problems: map[string]string{}, ignored: map[string]bool{},
	}
}

// changed makes the next scan read the file.
func (s *state) changed(path string, op fswatch.Op) {
	s.suspects[path] = true
	if op.Has(fswatch.Remove) {
		s.deleted[path] = true
	}
}

// suspectAll makes the next scan read every file.
func (s *state) suspectAll() {
	for path := range s.files {
		s.suspects[path] = true
	}
}

// pods returns the pods of all files, in the order of the file names, and then the
// restored pods that may be from a broken file.
func (s *state) pods() []*v1.Pod {
	if len(s.restored) == 0 {
		return s.union.items
	}
	return slices.Concat(s.union.items, s.restored)
}

// scan reads the files that may have changed, and passes the objects to the store. It
// returns whether the pods have changed, and the time until the next scan; 0 means the
// usual period.
func (s *state) scan(ctx context.Context, now time.Time) (changed bool, again time.Duration) {
	infos, err := s.list(ctx)
	if ctx.Err() != nil {
		return false, 0
	}
	if errors.Is(err, errAwaited) {
		return false, 0
	}
	if s.report("path", s.path, err); err != nil {
		return false, 0
	}
	forgotten := false
	for path := range s.files {
		if _, exists := infos[path]; !exists {
			s.forget(path)
			forgotten = true
		}
	}
	returned, again := s.withdraw(now)
	for path := range infos {
		if m := s.files[path]; m == nil {
			s.files[path] = &manifestFile{}
		} else if m.trusted && !s.suspects[path] && safefile.Unchanged(m.info, infos[path]) {
			delete(infos, path)
		}
	}
	if len(infos) == 0 && !forgotten && !returned && s.known && len(s.restored) == 0 {
		clear(s.suspects)
		return false, again // all files are as they were
	}
	paths := slices.Sorted(maps.Keys(infos))
	errs := s.readAll(ctx, paths)
	if ctx.Err() != nil {
		return false, 0
	}
	for i, path := range paths {
		again = flow.Soonest(again, s.assess(path, errs[i], now))
	}
	clear(s.suspects)
	if s.store != nil {
		if s.objects.update(s.files) || !s.known {
			s.store.Set(s.objects.items...)
		}
		s.reportConflicts(conflictPrefix+"objects ", s.objects.conflicts)
	}
	changed = s.union.update(s.files)
	changed = s.pruneRestored() || changed
	s.known = true
	s.reportConflicts(conflictPrefix+"pods ", s.union.conflicts)
	return changed, again
}

// withdraw withdraws the pods of the files that were deleted and are there again, for [awayTime]: they end, and start
// again, as with kubelet, also if the content is the same. It reports whether pods return, and the time until others
// do; 0 if there are none.
func (s *state) withdraw(now time.Time) (returned bool, again time.Duration) {
	for path, m := range s.files {
		if s.deleted[path] && len(m.pods) > 0 {
			m.awayUntil = now.Add(awayTime)
		}
		switch wait := m.awayUntil.Sub(now); {
		case m.awayUntil.IsZero():
		case wait > 0:
			again = flow.Soonest(again, wait)
		default:
			m.awayUntil, returned = time.Time{}, true
		}
	}
	clear(s.deleted)
	return returned, again
}

// maxReads is the number of files that are read at a time. A read that has no answer waits for its time limit, once.
const maxReads = 16

// readAll reads the files in parallel, and returns the error of each.
func (s *state) readAll(ctx context.Context, paths []string) []error {
	errs := make([]error, len(paths))
	var g errgroup.Group
	g.SetLimit(maxReads)
	parsing := make(chan struct{}, goruntime.GOMAXPROCS(0))
	for i, path := range paths {
		if ctx.Err() != nil {
			break
		}
		m := s.files[path]
		g.Go(func() error {
			errs[i] = runtime.Recover(func() error { return m.read(ctx, s, path, parsing) })
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errs
}

// assess reports the outcome of reading a file, err. A result above 0 is the time
// until the file is to be read again.
func (s *state) assess(path string, err error, now time.Time) time.Duration {
	m := s.files[path]
	if errors.Is(err, fs.ErrNotExist) {
		s.forget(path)
		return 0
	}
	if err != nil {
		m.trusted = false
		s.report(path, path, err)
		return 0
	}
	age := ageOf(m.info, now)
	m.trusted = age < 0 || age > minAge
	s.checkMode(path, m)
	if m.err != nil && age >= 0 && age < minAge {
		return minAge - age // it may be half written
	}
	s.report(path, path, cmp.Or(m.err, m.warning))
	return 0
}

// ageOf returns the time since the file was modified. A file that was modified during
// the scan, which began at now, has age 0. A file with a time stamp in the future has a
// negative age.
func ageOf(info os.FileInfo, now time.Time) time.Duration {
	age := now.Sub(info.ModTime())
	if age < 0 && time.Until(info.ModTime()) <= 0 {
		return 0
	}
	return age
}

// forget removes a file that does not exist any more.
func (s *state) forget(path string) {
	delete(s.files, path)
	s.report(path, path, nil)
}

// pruneRestored removes restored pods that are accounted for, and reports whether there
// were any: pods that a file has, and all pods once every file has been valid.
func (s *state) pruneRestored() (changed bool) {
	before := len(s.restored)
	if s.allValid() {
		s.restored = nil
	} else {
		s.restored = slices.DeleteFunc(slices.Clone(s.restored), s.union.has)
	}
	changed = len(s.restored) != before
	if len(s.restored) > 0 && (changed || !s.known) {
		names := make([]string, len(s.restored))
		for i, pod := range s.restored {
			names[i] = runtime.RefOf(pod).String()
		}
		s.opts.Logger.Info("Restored pods go on, because they may be from a broken file; repair or remove the file "+
			"to end this", "path", s.path, "pods", names)
	}
	return changed
}

// allValid reports whether every file has been valid in this run of the agent.
func (s *state) allValid() bool {
	for _, m := range s.files {
		if !m.good {
			return false
		}
	}
	return true
}
