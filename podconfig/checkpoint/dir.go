package checkpoint

import (
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Dir]. The zero value is valid.
type Options struct {
	// Logger. Default: that of package slog.
	Logger logr.Logger
	// Key encrypts secrets, config maps and the state of components. It has 16, 24 or 32
	// bytes, for AES-128, -192 or -256. Without it, only the file mode protects them. Records
	// that were written with another key are not used and stay where they are. Records that
	// are not encrypted are removed and not used: they may be forged, and the records from the
	// time without a key can be read. Pods are not encrypted, so records of pods can be forged
	// even if there is a key.
	Key []byte
}

// Dir is a [Store] in a directory. Its methods are safe for concurrent use.
type Dir struct {
	log     logr.Logger
	key     cipher.AEAD
	dir     string
	pods    folder
	objects folder
	endings folder // has the ends
	states  folder
	started atomic.Bool
	// dirty holds one token while there is something to write or to remove.
	dirty flow.Signal

	mu sync.Mutex
	// kept are the pods that should have a record, by UID.
	kept map[types.UID]*v1.Pod
	// references has how many kept pods refer to each object.
	references map[objects.Ref]int
	// ends are the pods whose end is to be reported, by UID.
	ends map[types.UID]runtime.PodRef
	// pending is the newest content of each file that is to be written: a pod, an
	// objectRecord, the reference of a pod that ends, the state of a component, or nil to
	// remove the file. It is marshalled when it is written, because Keep must not take that
	// long.
	pending map[file]any
	// failed are the pending records that could not be written. Each has a back-off of its
	// own, so that one that fails for ever does not delay others.
	failed map[file]failure
	// onDisk are the checksums of the records' contents, as far as they are known.
	onDisk map[file][sha256.Size]byte
	// held are the objects that have a record or should have one.
	held map[objects.Ref]metav1.Object
	// unreferenced is set if held may contain objects that no kept pod refers to.
	unreferenced bool
	// source is the source that Objects returned. stale are the objects to look up there.
	source *keptObjects
	stale  map[objects.Ref]struct{}
}

// file identifies a record.
type file struct {
	// object is set for a record of an object, end for that of the end of a pod, state for
	// that of a component.
	object, end, state bool
	name               string
}

// failure is the state of a record that could not be written.
type failure struct {
	times int // in a row
	retry time.Time
}

// New returns a store in the directory of that path. The directory need not exist, and must not be
// used by anything else. New does no I/O. The error is about the key.
func New(dir string, opts Options) (*Dir, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	key, err := newKey(opts.Key)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	aside, reader := filepath.Join(dir, "aside"), &safefile.Reader{}
	return &Dir{
		log:        opts.Logger,
		key:        key,
		dir:        dir,
		pods:       folder{path: filepath.Join(dir, "pods"), aside: aside, reader: reader},
		objects:    folder{path: filepath.Join(dir, "objects"), aside: aside, reader: reader},
		endings:    folder{path: filepath.Join(dir, "ends"), aside: aside, reader: reader},
		states:     folder{path: filepath.Join(dir, "state"), aside: aside, reader: reader},
		dirty:      flow.NewSignal(),
		kept:       map[types.UID]*v1.Pod{},
		references: map[objects.Ref]int{},
		ends:       map[types.UID]runtime.PodRef{},
		pending:    map[file]any{},
		failed:     map[file]failure{},
		onDisk:     map[file][sha256.Size]byte{},
		held:       map[objects.Ref]metav1.Object{},
		stale:      map[objects.Ref]struct{}{},
	}, nil
}

// Keep keeps a record of the pod and of the objects that it refers to. It does not
// block: [Dir.Run] writes the record. The pod must not be changed afterwards.
func (s *Dir) Keep(pod *v1.Pod) {
	if !podspec.IsFileName(pod.UID) {
		return // agents do not admit such pods
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[pod.UID] == pod {
		return
	}
	for _, ref := range s.keep(pod) {
		s.stale[ref] = struct{}{}
	}
	s.set(fileOfPod(pod.UID), pod)
}

// keep makes the pod a kept one, in place of the pod of the same UID. It returns the objects that
// the pod refers to. mu is held.
func (s *Dir) keep(pod *v1.Pod) []objects.Ref {
	refs := objects.References(pod)
	for _, ref := range refs {
		s.references[ref]++
	}
	if old := s.kept[pod.UID]; old != nil {
		s.unrefer(old)
	}
	s.kept[pod.UID] = pod
	return refs
}

// unrefer takes the references of a pod away that is not kept any more. The next flush drops the
// objects that no other pod refers to: a pod that follows may refer to them. mu is held.
func (s *Dir) unrefer(pod *v1.Pod) {
	for _, ref := range objects.References(pod) {
		if s.references[ref]--; s.references[ref] == 0 {
			delete(s.references, ref)
			s.unreferenced = true
		}
	}
}

// Drop removes the record of the pod, and those of objects that no other kept pod
// refers to. It does not block: [Dir.Run] removes the records.
func (s *Dir) Drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.kept[uid]; kept {
		s.forget(uid)
	}
}

// Prune drops the kept pods for which keep returns false. It is for pods without a
// removal: they were removed while no agent ran, or together with their source. Call it
// when all desired pods are known.
func (s *Dir) Prune(keep func(uid types.UID) bool) {
	s.mu.Lock()
	uids := slices.Collect(maps.Keys(s.kept))
	s.mu.Unlock()
	uids = slices.DeleteFunc(uids, keep)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range uids {
		s.forget(uid)
	}
}

// forget drops the record of a pod. mu is held.
func (s *Dir) forget(uid types.UID) {
	if pod := s.kept[uid]; pod != nil {
		s.unrefer(pod)
		delete(s.kept, uid)
	}
	s.set(fileOfPod(uid), nil)
}

// set schedules a record to be written, or with nil to be removed. mu is held.
func (s *Dir) set(f file, c any) {
	s.pending[f] = c
	delete(s.failed, f) // new content is tried at once
	s.dirty.Notify()
}

// Run writes and removes records until ctx ends. Then it writes what is left, once, and
// returns nil. A second call returns an error that wraps [runtime.ErrAlreadyRunning].
func (s *Dir) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return fmt.Errorf("checkpoint: %w", runtime.ErrAlreadyRunning)
	}
	flow.Saver{
		Dirty: s.dirty, Retry: s.nextRetry, Log: s.log.WithValues("path", s.dir),
		Save: func() error {
			if ctx.Err() != nil {
				return s.flush(true)
			}
			err := s.flush(false) // pods first: to look up their objects may take long
			s.renew(ctx)
			return cmp.Or(err, s.flush(false))
		},
		Failing: "Cannot write checkpoints; pods are not affected, but their changes are lost in a reboot; trying again",
		Saved:   "Checkpoints are written again",
		Unsaved: "Checkpoints are not up to date; after a reboot, pods may be missing or outdated until their sources " +
			"deliver them",
	}.Run(ctx)
	return nil
}

// nextRetry returns the time until the next retry.
func (s *Dir) nextRetry(int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, f := range s.failed {
		if next.IsZero() || f.retry.Before(next) {
			next = f.retry
		}
	}
	return time.Until(next)
}
