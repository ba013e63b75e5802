package checkpoint

import (
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Pauses after a write that failed; they double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Options are the settings of a [Store]; the zero value is good.
type Options struct {
	// Logger; the zero value discards.
	Logger logr.Logger
	// Key encrypts secrets and config maps: 16, 24 or 32 bytes for AES-128, -192 or
	// -256. Without it they are protected by their file mode alone. With another key
	// than they were written with they are set aside.
	Key []byte
}

// Store keeps pods on disk. It is safe for concurrent use.
type Store struct {
	log     logr.Logger
	key     cipher.AEAD
	dir     string
	pods    folder
	objects folder
	started atomic.Bool
	// dirty holds one token while something is to be written or removed.
	dirty chan struct{}

	mu sync.Mutex
	// kept are the pods that are to have a record, by UID.
	kept map[types.UID]*v1.Pod
	// pending has what is to be written, the newest state of each file: a pod or an
	// objectRecord, or nil for what is to be removed. It is made into bytes when it
	// is written, for that takes longer than whoever gives it may wait.
	pending map[file]any
	// onDisk has the checksum of each record's content, as far as it is known.
	onDisk map[file][sha256.Size]byte
	// held are the objects that have a record, or are to have one.
	held map[objects.Ref]metav1.Object
	// loose says that there may be some among held that no kept pod refers to any more.
	loose bool
	// source is what Objects returned; stale are objects to be looked up there.
	source *keptObjects
	stale  map[objects.Ref]struct{}
}

// file names a record.
type file struct {
	// object says that it is that of an object, not of a pod.
	object bool
	name   string
}

// New returns a store in the directory, which need not exist and belongs to the
// store alone. It does no I/O. The error says that the key cannot be one.
func New(dir string, opts Options) (*Store, error) {
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	key, err := newKey(opts.Key)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	aside := filepath.Join(dir, "aside")
	return &Store{
		log:     opts.Logger,
		key:     key,
		dir:     dir,
		pods:    folder{path: filepath.Join(dir, "pods"), aside: aside},
		objects: folder{path: filepath.Join(dir, "objects"), aside: aside},
		dirty:   make(chan struct{}, 1),
		kept:    map[types.UID]*v1.Pod{},
		pending: map[file]any{},
		onDisk:  map[file][sha256.Size]byte{},
		held:    map[objects.Ref]metav1.Object{},
		stale:   map[objects.Ref]struct{}{},
	}, nil
}

// Load reads the records and returns the pods, in the order of their UIDs, with
// the annotations that they were kept with; from then on they are kept. It is to be
// called before Keep. What cannot be used is set aside and logged; if the directory
// itself cannot be read, that is logged and there are no pods.
func (s *Store) Load(context.Context) []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	problem := func(path string, aside bool, err error) {
		if aside {
			s.log.Error(err, "Checkpoint cannot be used; it was set aside", "path", path, "aside", s.pods.aside)
		} else {
			s.log.Error(err, "Checkpoint cannot be used now; it stays where it is", "path", path)
		}
	}
	type dated struct {
		pod     *v1.Pod
		written time.Time
	}
	var found []dated
	err := s.pods.read(func(name string, record []byte, written time.Time) error {
		pod, err := s.podOf(name, record)
		if err == nil {
			found = append(found, dated{pod, written})
		}
		return err
	}, problem)
	slices.SortStableFunc(found, func(a, b dated) int { return a.written.Compare(b.written) })
	newest := map[string]types.UID{} // by full name
	for _, f := range found {
		full := runtime.RefOf(f.pod).FullName()
		if older, two := newest[full]; two { // it was to be removed, and there was no time for it
			s.forget(older)
		}
		newest[full] = f.pod.UID
		s.kept[f.pod.UID] = f.pod
	}
	if err != nil {
		s.log.Error(err, "Checkpoints of pods cannot be read; pods come back only when their source does", "path", s.pods.path)
	}
	err = s.objects.read(func(name string, record []byte, _ time.Time) error {
		return s.loadObject(name, record)
	}, problem)
	if err != nil {
		s.log.Error(err, "Checkpoints of secrets and config maps cannot be read", "path", s.objects.path)
	}
	s.dropObjects()
	pods := slices.Collect(maps.Values(s.kept))
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// podOf reads the record of a pod. mu is held.
func (s *Store) podOf(name string, record []byte) (*v1.Pod, error) {
	data, err := unpack(name, record, nil)
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	if string(pod.UID) != name || !runtime.IsFileName(pod.UID) {
		return nil, fmt.Errorf("%w of that name: the pod in it has UID %q", errForeign, pod.UID)
	}
	if errs := manifest.Validate(pod, manifest.Options{Allow: manifest.AllowedRefs{All: true}}); len(errs) > 0 {
		return nil, fmt.Errorf("pod %s in it is not valid: %w", runtime.RefOf(pod), errs.ToAggregate())
	}
	s.onDisk[file{name: name}] = sha256.Sum256(data)
	return pod, nil
}

// Keep wants the pod to have a record. The pod must not be changed any more.
func (s *Store) Keep(pod *v1.Pod) {
	if !runtime.IsFileName(pod.UID) {
		return // no agent takes on such a pod
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[pod.UID] == pod {
		return
	}
	s.kept[pod.UID] = pod
	for _, ref := range objects.References(pod) {
		s.stale[ref] = struct{}{}
	}
	s.set(file{name: string(pod.UID)}, pod)
}

// Drop wants the pod to have no record, nor the objects that no other kept pod
// refers to.
func (s *Store) Drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.kept[uid]; kept {
		s.forget(uid)
	}
}

// Prune drops the kept pods that keep does not want: those of which nobody says that
// they have gone, because they went while no agent ran, or with their source. It is
// for when all that is desired is known.
func (s *Store) Prune(keep func(uid types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.kept {
		if !keep(uid) {
			s.forget(uid)
		}
	}
}

// forget wants the pod to have no record. mu is held. Whether another one refers to
// its objects is left to the next flush: to ask for each of many pods that go at
// once would take as long as all of them have references, each time.
func (s *Store) forget(uid types.UID) {
	delete(s.kept, uid)
	s.loose = true
	s.set(file{name: string(uid)}, nil)
}

// set wants a record to have the content, or with nil to be gone. mu is held.
func (s *Store) set(f file, c any) {
	s.pending[f] = c
	s.wake()
}

func (s *Store) wake() {
	select {
	case s.dirty <- struct{}{}:
	default: // a token is there already
	}
}

// Run writes and removes records until the context ends, and tries for a last time
// then to write what is left. A second call returns [runtime.ErrAlreadyRunning].
func (s *Store) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	pause := firstPause
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			if err := s.flush(); err != nil {
				s.log.Error(err, "Checkpoints are not up to date; pods that only they know would not come back, or come back as they were")
			}
			return nil
		case <-s.dirty:
			if failed {
				continue // in its time, with the rest
			}
		case <-retry.C:
		}
		_ = s.flush() // pods first: what they refer to may take its time
		s.renew(ctx)
		err := s.flush() // with what has failed before
		switch {
		case err != nil && !failed:
			s.log.Error(err, "Cannot write checkpoints; pods are not touched by that, but a reboot would not bring back what has changed; trying again", "path", s.dir)
		case err == nil && failed:
			s.log.Info("Checkpoints are written again", "path", s.dir)
		}
		if failed = err != nil; failed {
			retry.Reset(pause)
			pause = min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
	}
}

// flush brings the disk up to date. What fails stays pending.
func (s *Store) flush() error {
	s.mu.Lock()
	if s.loose {
		s.dropObjects()
	}
	work := s.pending
	s.pending = map[file]any{}
	s.mu.Unlock()
	var removals, writes []file
	for f, c := range work {
		if c == nil {
			removals = append(removals, f)
		} else {
			writes = append(writes, f)
		}
	}
	// Removals first: there are never two records of pods of one full name, and they
	// make space.
	errs := append(s.bringAll(removals, work), s.bringAll(writes, work)...)
	if len(errs) > 3 { // a full disk says the same of each
		errs = append(errs[:3], fmt.Errorf("and %d more", len(errs)-3))
	}
	return errors.Join(errs...)
}

// atOnce is how many records are written at once: the file system then waits for the
// disk once for many of them.
const atOnce = 16

// bringAll brings records up to date and returns what failed, which stays pending.
func (s *Store) bringAll(files []file, work map[file]any) (failed []error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for _, in := range []folder{s.pods, s.objects} {
		of := slices.DeleteFunc(slices.Clone(files), func(f file) bool { return s.folderOf(f) != in })
		if len(of) == 0 {
			continue
		}
		sums, errs := make([][sha256.Size]byte, len(of)), make([]error, len(of))
		err := in.make()
		if err == nil {
			var writers errgroup.Group
			writers.SetLimit(atOnce)
			for i, f := range of {
				writers.Go(func() error {
					sums[i], errs[i] = s.bring(f, work[f])
					return nil
				})
			}
			_ = writers.Wait()
			err = in.sync()
		}
		s.mu.Lock()
		for i, f := range of {
			switch errs[i] = cmp.Or(errs[i], err); {
			case errs[i] != nil:
				failed = append(failed, fmt.Errorf("checkpoint of %s: %w", nameOf(f, work[f]), errs[i]))
				delete(s.onDisk, f) // it may be there, and not for good
				if _, newer := s.pending[f]; !newer {
					s.pending[f] = work[f]
				}
			case work[f] == nil:
				delete(s.onDisk, f)
			default:
				s.onDisk[f] = sums[i]
			}
		}
		s.mu.Unlock()
	}
	return failed
}

func (s *Store) folderOf(f file) folder {
	if f.object {
		return s.objects
	}
	return s.pods
}

// nameOf says what a record is about.
func nameOf(f file, content any) string {
	switch c := content.(type) {
	case *v1.Pod:
		return "pod " + runtime.RefOf(c).String()
	case objectRecord:
		return objects.RefOf(c.object()).String()
	default:
		return f.name + ", which is to be removed"
	}
}

// bring brings one record up to date, and returns the checksum of its content.
func (s *Store) bring(f file, c any) (sum [sha256.Size]byte, err error) {
	in := s.folderOf(f)
	if c == nil {
		return sum, in.remove(f.name)
	}
	data, err := json.Marshal(c)
	if err != nil {
		return sum, err
	}
	sum = sha256.Sum256(data)
	s.mu.Lock()
	before, there := s.onDisk[f]
	s.mu.Unlock()
	if there && before == sum {
		return sum, nil
	}
	var key cipher.AEAD
	if f.object {
		key = s.key
	}
	record, err := pack(f.name, data, key)
	if err != nil {
		return sum, err
	}
	return sum, in.write(f.name, record)
}
