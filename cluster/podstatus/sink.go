package podstatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// PodLookup has the pods of the API server that are bound to the node, with mirror pods, as the
// watch delivers them.
type PodLookup interface {
	ByUID(uid types.UID) (*v1.Pod, bool)
	ByName(namespace, name string) (*v1.Pod, bool)
	// Synced reports whether there was a complete list.
	Synced() bool
}

// Options are the settings of a [Sink]. The functions must not block or call the sink.
type Options struct {
	// NodeName is the name of the node. Required.
	NodeName string
	// NodeUID returns the UID of the API object of the node, which owns mirror pods; "" while
	// there is none, and then no mirror pod is created. If nil, there are no mirror pods.
	NodeUID func() types.UID
	// Ended reports whether the agent has finished the pod: its containers have stopped, its
	// volumes are taken down, and it is not started again. That includes a pod that was
	// refused, or that the agent never had, of which nothing runs. Only then its API object
	// is deleted. Required.
	Ended func(uid types.UID) bool
	// Orphaned reports whether all sources have delivered and none has a static pod of the name:
	// then its mirror pod is deleted. It is called only for mirror pods whose static pod has no
	// status. If nil, a mirror pod is deleted only if its static pod ends while the sink runs.
	Orphaned func(namespace, name string) bool
	// QPS and Burst limit the calls: QPS a second on average, Burst at once. A QPS below 0 is no
	// limit. The client is best without a limit of its own (rest.Config.QPS: -1). Defaults: 50 and 100,
	// kubelet's for all its calls.
	QPS   float32
	Burst int
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// callTimeout is the deadline of each call, without the time that it waits for the limit of calls.
const callTimeout = 10 * time.Second

// checkPeriod is the time after which a pod is checked again that waits for something without an event: the
// registration of the node, or the end of a pod that does not reach the agent. It costs no call.
const checkPeriod = time.Second

// holdPeriod is how long the status of a pod whose containers have all ended waits for the final
// status.
const holdPeriod = 250 * time.Millisecond

// startPeriod is how long the status of a pod whose containers are being created waits for the
// next one: most pods run by then, so that they need one or two writes less. In a rush of pods these
// statuses matter least, so that one is written each startSpacing, or when it has waited for
// maxStartPeriod. A second such status of a pod, with its address, waits for maxStartPeriod.
const (
	startPeriod    = time.Second
	maxStartPeriod = 10 * time.Second
	startSpacing   = 200 * time.Millisecond
)

// A status that another writer has overwritten is written again at once resendBurst times, and then once in
// resendPeriod.
const (
	resendPeriod = 10 * time.Second
	resendBurst  = 3
)

// enoughRefusals is the time after which a pod whose final status is refused is deleted without
// it. A webhook that refuses it once may soon allow it.
const enoughRefusals = 30 * time.Second

// Sink is a [status.Sink] that writes to an API server. All methods are safe for concurrent
// use.
type Sink struct {
	client kubernetes.Interface
	pods   PodLookup
	opts   Options
	log    logr.Logger
	limit  *rate.Limiter

	// wake holds a token when there are requests or the strays may have changed. Further tokens are dropped.
	wake flow.Signal

	mu sync.Mutex
	// lastStart is the latest time until which the status of a starting pod is held.
	lastStart time.Time
	// entries has the pods that have a status, by UID.
	entries map[types.UID]*entry
	// static has the UID of the latest static pod of each name. The pod has an entry of the name.
	static map[types.NamespacedName]types.UID
	// requests has the pods whose status WatchReceiver requests to be delivered again.
	requests map[types.UID]struct{}
	strays   map[types.UID]*stray
	// ended has the mirror pod that PodGone has deleted last for each name, until the watch removes it.
	ended map[types.NamespacedName]types.UID
}

var _ status.Sink = (*Sink)(nil)

// New returns a sink. pods has the pods of the API server, a [*podsource.Source]. It makes no calls before a method is
// called.
func New(client kubernetes.Interface, pods PodLookup, opts Options) (*Sink, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("podstatus: %s is required", what))
		}
	}
	require(client != nil, "a client")
	require(pods != nil, "Pods")
	require(opts.NodeName != "", "Options.NodeName")
	require(opts.Ended != nil, "Options.Ended")
	if opts.Burst < 0 {
		errs = append(errs, errors.New("podstatus: Burst must not be below 0"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.QPS == 0 {
		opts.QPS = 50
	}
	if opts.Burst == 0 {
		opts.Burst = max(1, int(2*opts.QPS))
	}
	limit := rate.Limit(opts.QPS)
	if limit < 0 {
		limit = rate.Inf
	}
	return &Sink{
		client: client, pods: pods, opts: opts, log: opts.Logger, limit: rate.NewLimiter(limit, opts.Burst),
		wake:    flow.NewSignal(),
		entries: map[types.UID]*entry{}, static: map[types.NamespacedName]types.UID{},
		requests: map[types.UID]struct{}{}, strays: map[types.UID]*stray{}, ended: map[types.NamespacedName]types.UID{},
	}, nil
}

// Deliver implements [status.Sink]. The error wraps [status.ErrGone] if the API server does not
// have the pod, and [status.ErrRefused] if it refuses the status as invalid, or if the static pod cannot have a
// mirror pod. A status cannot be sent while the node is not registered, or its pods have not been listed, and
// may wait for the next one: then the result says when to deliver it again.
func (s *Sink) Deliver(ctx context.Context, pod *v1.Pod, own v1.PodStatus) (status.Result, error) {
	e, replaced := s.latest(pod, &own)
	if obj, ok := s.pods.ByUID(pod.UID); replaced && ok {
		s.addStray(obj)
	}
	deliver := s.syncPod
	if e.static {
		deliver = s.syncMirror
	}
	wait, err := deliver(ctx, e)
	return status.Result{Later: wait}, err
}

// latest makes own the latest status of the pod, and returns its entry. It reports whether the entry replaces that
// of a pod of the API server by that of a static pod with its UID, or the other way round.
func (s *Sink) latest(pod *v1.Pod, own *v1.PodStatus) (e *entry, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.entries[pod.UID]
	if e != nil && e.static != podspec.IsStatic(pod) {
		s.forget(e)
		e, replaced = nil, true
	}
	if e == nil {
		e = &entry{uid: pod.UID, static: podspec.IsStatic(pod), name: nameOf(pod), deleted: s.ended[nameOf(pod)]}
		s.entries[pod.UID] = e
	}
	if e.static && (e.own == nil || s.static[e.name] == "") {
		// From its predecessor, whose statuses are not sent any more, or back from a successor that is
		// gone. The mirror pod of before is gone, too.
		s.static[e.name], e.answered = e.uid, nil
	}
	// A status that is delivered again stays the one that was refused or waits.
	if e.own == nil || !equality.Semantic.DeepEqual(e.own, own) {
		e.own, e.refusedAt = own, time.Time{}
	}
	e.pod = pod
	return e, replaced
}

// forget removes the entry. s.mu is held.
func (s *Sink) forget(e *entry) {
	delete(s.entries, e.uid)
	if s.static[e.name] == e.uid {
		delete(s.static, e.name)
	}
}

// PodFinished implements [status.Sink]. If the API object is to be deleted, the next delivery deletes it.
func (s *Sink) PodFinished(pod runtime.PodRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.request(pod.UID)
}

// PodGone implements [status.Sink]. It deletes the mirror pod of a static pod. If the pods have not been
// listed, WatchReceiver does that after the list. Of a pod without a status, which an earlier agent has left, the
// mirror pod may be that of a pod that another agent has started since: only one with the UID as its hash is deleted.
func (s *Sink) PodGone(ctx context.Context, ref runtime.PodRef, _ *v1.PodStatus) error {
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	s.mu.Lock()
	e, latest := s.entries[ref.UID], s.static[name]
	var mirror *v1.Pod // if the watch does not have it yet
	if e != nil {
		mirror = e.answered
	}
	s.mu.Unlock()
	if watched, ok := s.pods.ByName(name.Namespace, name.Name); ok {
		mirror = watched
	}
	successor := latest != "" && latest != ref.UID || e == nil && mirror != nil &&
		mirror.Annotations[podspec.AnnotationConfigMirror] != string(ref.UID)
	if !successor && s.pods.Synced() && mirror != nil && podspec.IsMirror(mirror) {
		if err := s.remove(ctx, mirror); err != nil {
			return err
		}
		s.mu.Lock()
		s.ended[name] = mirror.UID
		s.mu.Unlock()
	}
	_, watched := s.pods.ByName(name.Namespace, name.Name)
	obj, isPod := s.pods.ByUID(ref.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !watched { // its event came before
		delete(s.ended, name)
	}
	if e != nil {
		s.forget(e)
	}
	if isPod {
		s.addStrayLocked(obj)
	}
	return nil
}

// PodsChanged is an observer of a [podsource.Source]. It makes no calls.
func (s *Sink) PodsChanged(c podsource.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range c.Removed {
		s.objectRemoved(pod)
	}
	for _, pod := range c.Changed {
		s.objectChanged(pod)
	}
	if !c.Complete {
		return
	}
	for uid, e := range s.entries {
		if e.answered != nil { // it may be gone, without an event of the watch
			e.answered = nil
			s.request(uid)
		}
	}
}

// request has the status of the pod delivered again, if it has one. s.mu is held.
func (s *Sink) request(uid types.UID) {
	if s.entries[uid] == nil {
		return // its status is to come
	}
	s.requests[uid] = struct{}{}
	s.wake.Notify()
}

// entryOf returns the entry of the API object, nil if there is none. A mirror pod belongs to the entry
// of its static pod. s.mu is held.
func (s *Sink) entryOf(obj *v1.Pod) *entry {
	uid, mirror := obj.UID, podspec.IsMirror(obj)
	if mirror {
		uid = s.static[nameOf(obj)]
	}
	if e := s.entries[uid]; e != nil && e.static == mirror {
		return e
	}
	return nil
}

func (s *Sink) objectRemoved(obj *v1.Pod) {
	delete(s.strays, obj.UID)
	if s.ended[nameOf(obj)] == obj.UID {
		delete(s.ended, nameOf(obj))
	}
	if static, ok := s.static[nameOf(obj)]; ok {
		s.request(static) // the name is free for a mirror pod
	}
	if e := s.entryOf(obj); e != nil && e.answered != nil && e.answered.UID == obj.UID {
		e.answered = nil
	}
}

// objectChanged requests a delivery if the API object is not as the sink has left it.
func (s *Sink) objectChanged(obj *v1.Pod) {
	e := s.entryOf(obj)
	if e == nil {
		s.addStrayLocked(obj)
		return
	}
	if a := e.answered; a != nil && a.UID == obj.UID {
		if older(obj, a) {
			return
		}
		e.answered = nil
		if a.ResourceVersion == obj.ResourceVersion { // our own write
			if e.accepted == &a.Status {
				e.accepted = &obj.Status // so that the answer can be freed
			}
			if obj.DeletionTimestamp == nil {
				return
			}
		}
	}
	if e.refusedAt.IsZero() || obj.DeletionTimestamp != nil && podspec.IsPhaseTerminal(obj.Status.Phase) &&
		e.deleted != obj.UID {
		s.request(e.uid)
	}
}

func nameOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
