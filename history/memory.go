package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Memory]; the zero value is valid.
type Options struct {
	// MaxBytes is the memory of the history of one pod, in bytes, with everything that
	// belongs to it. Default: 2000, the smallest 1500.
	MaxBytes int
	// MaxEntries is the number of entries of one pod. Default: 100.
	MaxEntries int
	// MaxAge is how long an entry is kept. Default: 7 days.
	MaxAge time.Duration
	// KeepGone is how long the history of a pod is kept after the pod is gone. Default: 1
	// hour.
	KeepGone time.Duration
	// MaxGone is the number of pods whose history is kept although they are gone. Default:
	// 100.
	MaxGone int
	// File is the path of the file in which the history survives the agent. It belongs to
	// one Memory. If empty, there is no file.
	File string
	// Logger receives failures to read or to write the file. Default: that of package slog.
	Logger logr.Logger
}

const (
	// overhead is the memory of a pod beside the buffer of its entries, in bytes: the
	// record of the pod, its place in the map, and its names. TestMemory measures it. It is
	// chosen so that the default buffer has 1536 bytes, which is a size class of Go.
	overhead = 464
	// minBytes is the smallest MaxBytes. The longest entry has less than 1000 bytes.
	minBytes = 1500
	// maxPods is the number of pods that have a history, many times what a node has. A runtime
	// can show any number of pods that no agent has ever removed.
	maxPods = 5000
	// sweepPeriod is the time between two sweeps for what is too old. They are made when
	// something is recorded, so an idle agent makes none.
	sweepPeriod = time.Minute
)

// Memory is the default [Store]. It is in memory, and with [Options].File also on disk.
// Make one with [New].
type Memory struct {
	opts   Options
	limits limits

	mu   sync.Mutex
	pods map[types.UID]*pod
	// seq is the number of the last entry.
	seq uint64
	// gone has the pods whose goneAt is not zero, the first that was gone first.
	gone  []types.UID
	swept time.Time
	// loadedAt is when Load has read the file.
	loadedAt time.Time
	watchers map[*watcher]struct{}
	// key is memory for the key of one record.
	key [maxKey]byte

	// loaded and ran guard Load and Run against a second call.
	loaded, ran bool
}

// maxKey is the maximum length of the key of a record: two words, an exit code, two names
// and two texts.
const maxKey = 2*(maxName+2) + 5 + 2*(maxName+1) + 2*(maxText+2)

// pod is the history of a pod.
type pod struct {
	ref  runtime.PodRef
	ring ring
	// last is the number of the last entry.
	last uint64
	// goneAt is zero unless the pod is gone.
	goneAt time.Time
	// restored means that an earlier agent has kept the history, and that nothing was
	// recorded since. If goneAt is zero, the pod may be gone since the agent started.
	restored bool
}

var _ Store = (*Memory)(nil)

// New returns a Memory, or an error that names all invalid options. It does no I/O.
func New(opts Options) (*Memory, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 2000
	}
	if opts.MaxBytes < minBytes {
		errs = append(errs, fmt.Errorf("history: Options.MaxBytes %d is less than %d", opts.MaxBytes, minBytes))
	}
	for _, o := range []struct {
		name  string
		value *int
		def   int
	}{{"MaxEntries", &opts.MaxEntries, 100}, {"MaxGone", &opts.MaxGone, 100}} {
		if *o.value == 0 {
			*o.value = o.def
		}
		if *o.value < 0 {
			errs = append(errs, fmt.Errorf("history: Options.%s %d is negative", o.name, *o.value))
		}
	}
	for _, o := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"MaxAge", &opts.MaxAge, 7 * 24 * time.Hour}, {"KeepGone", &opts.KeepGone, time.Hour}} {
		if *o.value == 0 {
			*o.value = o.def
		}
		if *o.value < 0 {
			errs = append(errs, fmt.Errorf("history: Options.%s %s is negative", o.name, *o.value))
		}
	}
	if opts.File != "" && !filepath.IsAbs(opts.File) {
		errs = append(errs, fmt.Errorf("history: Options.File %q is not an absolute path", opts.File))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Memory{
		opts: opts, limits: limits{entries: opts.MaxEntries, bytes: opts.MaxBytes - overhead},
		pods: map[types.UID]*pod{}, watchers: map[*watcher]struct{}{},
	}, nil
}

// Record implements [Store]. A [runtime.KindRemovePod] means that the pod is gone; any
// later record of the pod means that it is there again, except those of aside. A rejection is
// recorded in the history of the pod that has the name, if there is one: it may be another
// definition of that pod, with another UID.
func (m *Memory) Record(r runtime.Record) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.podOf(&r, now)
	if p == nil {
		return
	}
	if p.restored && !aside(r.Kind) {
		p.restored = false
		m.add(p, now, &runtime.Record{Stage: runtime.StageSeen, Kind: runtime.KindAgentStarted})
	}
	m.add(p, now, &r)
	if !aside(r.Kind) {
		m.setGone(p, r.Kind == runtime.KindRemovePod, now)
	}
	m.sweep(now)
	for w := range m.watchers {
		w.note(p.ref.UID)
	}
}

// aside reports whether a record of the kind says nothing about whether the pod is on the
// node.
func aside(kind runtime.RecordKind) bool {
	return kind == runtime.KindReject || kind == runtime.KindRemoveCgroup || kind == runtime.KindRotateLog
}

// The functions below are called with the lock held.

// podOf returns the pod that a record is about, nil if the record is not kept. What a pod has
// left behind is not kept if nothing else is known of the pod. A pod of which only a rejection
// is known counts as gone.
func (m *Memory) podOf(r *runtime.Record, now time.Time) *pod {
	if p := m.pods[r.Pod.UID]; p != nil {
		return p
	}
	switch {
	case r.Kind == runtime.KindReject:
		if p := m.latestOf(r.Pod); p != nil {
			return p
		}
		if r.Pod.UID == "" || r.Pod.Name == "" {
			return nil
		}
		p := m.addPod(r.Pod)
		m.setGone(p, true, now)
		return p
	case aside(r.Kind):
		return nil
	}
	return m.addPod(r.Pod)
}

// latestOf returns the pod of the full name that has the latest entry, nil if there is none.
func (m *Memory) latestOf(ref runtime.PodRef) *pod {
	var latest *pod
	for _, p := range m.pods {
		if p.ref.Namespace == ref.Namespace && p.ref.Name == ref.Name && (latest == nil || p.last > latest.last) {
			latest = p
		}
	}
	return latest
}

func (m *Memory) addPod(ref runtime.PodRef) *pod {
	if len(m.pods) >= maxPods {
		m.makeRoom()
	}
	p := &pod{ref: ref}
	m.pods[ref.UID] = p
	return p
}

func (m *Memory) add(p *pod, now time.Time, r *runtime.Record) {
	m.seq++
	p.last = m.seq
	p.ring.add(m.limits, appendKey(m.key[:0], r), now.UnixMicro(), m.seq, r)
}

// setGone records whether the pod is gone. If too many are, it drops the first of them.
func (m *Memory) setGone(p *pod, gone bool, now time.Time) {
	switch {
	case gone == !p.goneAt.IsZero():
	case gone:
		p.goneAt = now
		m.gone = append(m.gone, p.ref.UID)
		m.dropGone(len(m.gone) - m.opts.MaxGone)
	default:
		p.goneAt = time.Time{}
		m.gone = slices.DeleteFunc(m.gone, func(uid types.UID) bool { return uid == p.ref.UID })
	}
}

// makeRoom drops all pods that are gone. If there are none, it drops those whose last entries
// are the oldest: not one alone, so that its cost is shared by many additions.
func (m *Memory) makeRoom() {
	if len(m.gone) > 0 {
		m.dropGone(len(m.gone))
		return
	}
	byAge := slices.SortedFunc(maps.Values(m.pods), func(a, b *pod) int { return cmp.Compare(a.last, b.last) })
	for _, p := range byAge[:len(byAge)/8] {
		m.forget(p.ref.UID)
	}
}

// forget drops a pod that is not in gone.
func (m *Memory) forget(uid types.UID) {
	delete(m.pods, uid)
	for w := range m.watchers { // one may not read for a long time
		delete(w.news, uid)
	}
}

// dropGone drops the first n of the pods that are gone.
func (m *Memory) dropGone(n int) {
	if n <= 0 {
		return
	}
	for _, uid := range m.gone[:n] {
		m.forget(uid)
	}
	m.gone = slices.Delete(m.gone, 0, n)
}

// sweep drops what is too old, once in a while.
func (m *Memory) sweep(now time.Time) {
	if since := now.Sub(m.swept); since >= 0 && since < sweepPeriod {
		return
	}
	m.swept = now
	old := 0
	for old < len(m.gone) && now.Sub(m.pods[m.gone[old]].goneAt) >= m.opts.KeepGone {
		old++
	}
	m.dropGone(old)
	for uid, p := range m.pods {
		p.ring.dropUntil(now.Add(-m.opts.MaxAge).UnixMicro())
		if p.goneAt.IsZero() && (p.ring.n == 0 || p.restored && now.Sub(m.loadedAt) >= m.opts.KeepGone) {
			m.forget(uid)
		}
	}
}

// Pods implements [Store].
func (m *Memory) Pods() []Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(time.Now())
	pods := make([]Pod, 0, len(m.pods))
	for _, p := range m.pods {
		gone := p.goneAt
		if p.restored && gone.IsZero() {
			gone = m.loadedAt
		}
		pods = append(pods, Pod{p.ref, gone})
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	return pods
}

// Entries implements [Store].
func (m *Memory) Entries(uid types.UID) []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(time.Now())
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	return p.ring.appendEntries(make([]Entry, 0, p.ring.n), p.ref, 0)
}
