package staticuid

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of [UIDs]. The zero value is valid.
type Options struct {
	// States keeps the UIDs for the next agent. If nil, they are not kept.
	States runtime.States
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// PodReader is the part of a [runtime.Runtime] that [UIDs] use.
type PodReader interface {
	runtime.Lister
	runtime.Inspector
}

// UIDs decides the UIDs of static pods. It is safe for concurrent use.
type UIDs struct {
	runtime PodReader
	states  runtime.States
	log     logr.Logger
	// reading holds a token while a goroutine reads the runtime and the kept UIDs for the first time.
	reading chan struct{}

	mu sync.Mutex
	// found are the pods in the runtime before the first decision, by full name; nil before they are listed.
	found map[string][]found
	// kept are the UIDs, the oldest first.
	kept []record
}

// found is a pod in the runtime.
type found struct {
	ref     runtime.PodRef
	running bool
	created time.Time // its newest sandbox; zero if it has none
}

// preferred sorts the pods of a name: those that run before those that have ended, and then the newest
// first. An agent may be stopped while it still ends an older pod of the name.
func preferred(a, b found) int {
	if a.running != b.running {
		if a.running {
			return -1
		}
		return 1
	}
	return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.ref.UID, b.ref.UID))
}

// record is the UID of a static pod.
type record struct {
	Source    string    `json:"source"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Manifest  string    `json:"manifest"` // see podconfig.StaticPod
	UID       types.UID `json:"uid"`
	// used is true if the UID was decided by this agent.
	used bool
}

const (
	// stateName is the name of the kept UIDs among the states.
	stateName = "static-pods"
	// maxKept is the number of UIDs that are kept beside those that this agent has decided.
	maxKept = 1000
	// callTimeout is the deadline of each call of the runtime.
	callTimeout = 10 * time.Second
	// inspections is the number of times that an inspection is tried.
	inspections = 5
)

// retries are the delays between calls of a runtime that fail.
var retries = flow.Backoff{Min: 100 * time.Millisecond, Max: time.Second}

// New returns the UIDs of the static pods of a node with the runtime, which is a [runtime.Lister] and a
// [runtime.Inspector]. It does no I/O.
func New(rt PodReader, opts Options) *UIDs {
	opts.Logger = logging.OrDefault(opts.Logger)
	return &UIDs{runtime: rt, states: opts.States, log: opts.Logger, reading: make(chan struct{}, 1)}
}

// UID returns the UID of the pod. It waits until the runtime has listed its pods, or until ctx ends: then it returns
// the derived UID.
func (u *UIDs) UID(ctx context.Context, pod podconfig.StaticPod) types.UID {
	if !u.read(ctx, true) {
		return pod.Pod.UID
	}
	ref := runtime.RefOf(pod.Pod)
	kept, known := u.keptFor(pod)
	if !known {
		kept = ref.UID
	}
	uid := kept
	if theirs, ok := u.adoptable(ref, kept); ok && !u.changed(pod, theirs.ref.UID) && u.same(ctx, pod, theirs.ref) {
		uid = theirs.ref.UID
		u.log.Info("Static pod that another agent has started keeps its UID, and runs on", "pod", theirs.ref,
			"derivedUID", ref.UID)
	}
	if ctx.Err() == nil && (!known || uid != kept) {
		u.keep(pod, uid)
	}
	return uid
}

// Restored returns the pods with the UIDs under which they run now. A static pod is left out if a newer pod of its name
// runs: its source will deliver that. If the runtime cannot be listed at once, all pods are
// returned as they are.
func (u *UIDs) Restored(ctx context.Context, pods []*v1.Pod) []*v1.Pod {
	if !slices.ContainsFunc(pods, podspec.IsStatic) || !u.read(ctx, false) {
		return pods
	}
	out := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		ref := runtime.RefOf(pod)
		theirs, ok := u.adoptable(ref, ref.UID)
		switch {
		case !podspec.IsStatic(pod) || !ok || !theirs.running:
			out = append(out, pod)
		case u.same(ctx, podconfig.StaticPod{Source: pod.Annotations[podspec.AnnotationConfigSource], Pod: pod},
			theirs.ref):
			again := pod.DeepCopy()
			again.UID = theirs.ref.UID
			again.Annotations[podspec.AnnotationConfigHash] = string(theirs.ref.UID)
			out = append(out, again)
		default:
			u.log.Info("Static pod is not restored: another agent has started another pod of its name", "pod", ref,
				"running", theirs.ref)
		}
	}
	return out
}

// read lists the runtime and loads the kept UIDs, once. It reports whether that has been done. If wait is true, it
// tries until ctx ends.
func (u *UIDs) read(ctx context.Context, wait bool) bool {
	select {
	case <-ctx.Done():
		return false
	case u.reading <- struct{}{}:
	}
	defer func() { <-u.reading }()
	u.mu.Lock()
	done := u.found != nil
	u.mu.Unlock()
	for failures := 0; !done; {
		pods, err := u.list(ctx)
		if err == nil {
			var kept struct{ Pods []record }
			if u.states != nil {
				u.states.LoadState(stateName, &kept)
			}
			u.mu.Lock()
			u.found, u.kept = byName(pods), kept.Pods
			u.mu.Unlock()
			return true
		}
		failures++
		if failures == 1 && wait {
			u.log.Info("Static pods without a UID wait for the pods of the runtime, which cannot be listed",
				"error", err.Error())
		}
		if !wait || !flow.Sleep(ctx, retries.After(failures)) {
			return false
		}
	}
	return true
}

func (u *UIDs) list(ctx context.Context) ([]*runtime.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return runtime.ListPods(ctx, u.runtime)
}

func byName(pods []*runtime.Pod) map[string][]found {
	out := make(map[string][]found, len(pods))
	for _, pod := range pods {
		name, f := pod.FullName(), found{ref: pod.PodRef, running: pod.Running()}
		if len(pod.Sandboxes) > 0 {
			f.created = pod.Sandboxes[0].CreatedAt
		}
		out[name] = append(out[name], f)
	}
	return out
}

// adoptable returns the pod of the name in the runtime whose UID the pod may have in place of the known one: the
// newest that runs, or the newest if none runs.
func (u *UIDs) adoptable(pod runtime.PodRef, known types.UID) (_ found, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pods := u.found[pod.FullName()]
	if len(pods) == 0 {
		return found{}, false
	}
	newest := slices.MinFunc(pods, preferred)
	return newest, newest.ref.UID != known
}

// keptFor returns the UID that was kept for this content of the manifest.
func (u *UIDs) keptFor(pod podconfig.StaticPod) (types.UID, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.kept {
		if r := &u.kept[i]; r.of(pod) && r.Manifest == pod.Manifest {
			r.used = true
			return r.UID, true
		}
	}
	return "", false
}

// changed reports whether the UID was kept for other content of the manifest.
func (u *UIDs) changed(pod podconfig.StaticPod, uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.kept,
		func(r record) bool { return r.of(pod) && r.UID == uid && r.Manifest != pod.Manifest })
}

// of reports whether the record is of a pod of that source and name.
func (r *record) of(pod podconfig.StaticPod) bool {
	return r.Source == pod.Source && r.Namespace == pod.Pod.Namespace && r.Name == pod.Pod.Name
}

// keep keeps the UID for this content of the manifest.
func (u *UIDs) keep(pod podconfig.StaticPod, uid types.UID) {
	u.mu.Lock()
	u.kept = slices.DeleteFunc(u.kept, func(r record) bool { return r.of(pod) && r.Manifest == pod.Manifest })
	u.kept = append(u.kept, record{pod.Source, pod.Pod.Namespace, pod.Pod.Name, pod.Manifest, uid, true})
	if len(u.kept) > maxKept {
		if i := slices.IndexFunc(u.kept, func(r record) bool { return !r.used }); i >= 0 {
			u.kept = slices.Delete(u.kept, i, i+1)
		}
	}
	u.mu.Unlock()
	if u.states != nil {
		u.states.KeepState(stateName, state{u})
	}
}

// state has the kept UIDs as JSON, as they are when they are written.
type state struct{ uids *UIDs }

// MarshalJSON implements [json.Marshaler].
func (s state) MarshalJSON() ([]byte, error) {
	s.uids.mu.Lock()
	kept := slices.Clone(s.uids.kept)
	s.uids.mu.Unlock()
	return json.Marshal(struct {
		Pods []record `json:"pods"`
	}{kept})
}
