package podstatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Pods are the pods of the API server that are bound to the node, with mirror pods, as the
// watch delivers them; a [*podsource.Source] is one.
type Pods interface {
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
	// limit. The client is best without a limit of its own (rest.Config.QPS: -1), because its order is
	// not that of the sink. Defaults: 50 and 100, kubelet's for all its calls.
	QPS   float32
	Burst int
	// Timeout is the deadline of each call, without the time that it waits for its turn.
	// Default: 10 s.
	Timeout time.Duration
	// RetryMin and RetryMax bound the back-off of what Run repeats for one pod. Defaults: 250 ms
	// and 3 s. While the server fails for all pods, one of them is tried every 2 to 3 s.
	RetryMin, RetryMax time.Duration
	// Logger. The zero value discards.
	Logger logr.Logger
}

// checkPeriod is the time after which Run checks a pod again that waits for something without an event: the
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

// maxResendPeriod is the longest back-off of a status that another writer overwrites again and
// again.
const maxResendPeriod = 10 * time.Second

// minInvalidPeriod and maxInvalidPeriod bound the time after which a status that the server has
// refused is sent again: the server, or a webhook of it, may have changed. The time doubles.
const (
	minInvalidPeriod = 2 * time.Second
	maxInvalidPeriod = 5 * time.Minute
	// enoughRefusals is the time after which a pod whose final status is refused is deleted without
	// it. A webhook that refuses it once may soon allow it.
	enoughRefusals = 30 * time.Second
)

// Sink is a [status.Sink] that writes to an API server. All methods are safe for concurrent
// use.
type Sink struct {
	client  kubernetes.Interface
	pods    Pods
	opts    Options
	log     logr.Logger
	budget  *limiter
	backoff flow.Backoff

	// wake holds a token when the agenda may have changed. Further tokens are dropped.
	wake chan struct{}

	mu      sync.Mutex
	started bool
	breaker breaker
	// lastStart is the latest startAt of an entry.
	lastStart time.Time
	// repeatedAt is the time for which repeatFailed put something on the agenda last.
	repeatedAt time.Time
	entries    map[entryKey]*entry
	// static has the UID of the latest static pod of each name. The pod has an entry of the name.
	static map[types.NamespacedName]types.UID
	// agenda has the time at which Run syncs an entry.
	agenda map[*entry]time.Time
}

var (
	_ status.Sink        = (*Sink)(nil)
	_ podsource.Observer = (*Sink)(nil)
)

// New returns a sink. It makes no calls before a method is called.
func New(client kubernetes.Interface, pods Pods, opts Options) (*Sink, error) {
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
	if opts.Burst < 0 || opts.Timeout < 0 || opts.RetryMin < 0 || opts.RetryMax < 0 {
		errs = append(errs, errors.New("podstatus: Burst, Timeout, RetryMin and RetryMax must not be below 0"))
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
	if opts.Timeout == 0 {
		opts.Timeout = 10 * time.Second
	}
	if opts.RetryMin == 0 {
		opts.RetryMin = 250 * time.Millisecond
	}
	if opts.RetryMax == 0 {
		opts.RetryMax = max(3*time.Second, opts.RetryMin)
	}
	return &Sink{
		client: client, pods: pods, opts: opts, log: opts.Logger,
		budget:  newLimiter(float64(opts.QPS), opts.Burst),
		backoff: flow.Backoff{Min: opts.RetryMin, Max: opts.RetryMax},
		wake:    make(chan struct{}, 1),
		entries: map[entryKey]*entry{}, static: map[types.NamespacedName]types.UID{}, agenda: map[*entry]time.Time{},
	}, nil
}

// entry returns the entry of the key, and makes one if there is none. s.mu is held.
func (s *Sink) entry(key entryKey, name types.NamespacedName) *entry {
	e := s.entries[key]
	if e == nil {
		e = &entry{entryKey: key, name: name, turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		s.entries[key] = e
	}
	return e
}

// forget removes the entry. s.mu is held.
func (s *Sink) forget(e *entry) {
	delete(s.entries, e.entryKey)
	delete(s.agenda, e)
	e.forgotten = true
	if e.kind == ofStatic && s.static[e.name] == e.uid {
		delete(s.static, e.name)
	}
}

// Deliver implements [status.Sink]. The error wraps [status.ErrGone] if the API server does not
// have the pod. The result says when to deliver again a status that cannot be sent yet, because the node is not
// registered or its pods have not been listed, that waits for the next one, or that the API server has refused.
// Run sends it at its time, too.
func (s *Sink) Deliver(ctx context.Context, pod *v1.Pod, own v1.PodStatus) (status.Result, error) {
	key := entryKey{pod.UID, ofPod}
	if podspec.IsStatic(pod) {
		key.kind = ofStatic
	}
	s.mu.Lock()
	e := s.entry(key, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	if e.kind == ofStatic && (e.own == nil || s.static[e.name] == "") {
		// From its predecessor, whose statuses are not sent any more, or back from a successor that is
		// gone. The mirror pod of before is gone, too.
		s.static[e.name], e.answered = e.uid, nil
	}
	// A status that is delivered again stays the one that has failed, was refused or waits.
	if e.own == nil || !equality.Semantic.DeepEqual(*e.own, own) {
		e.own = &own
	}
	e.pod = pod
	if other := s.entries[entryKey{pod.UID, ofPod}]; other != nil && other.own != nil && e.kind == ofStatic {
		s.plan(other, time.Now()) // it has ended when the static pod is started
		s.poke()
	}
	s.mu.Unlock()
	wait, err := s.sync(ctx, e)
	if errors.Is(err, errNotReady) {
		wait, err = max(wait, checkPeriod), nil
	}
	return status.Result{Later: wait}, err
}

// PodFinished implements [status.Sink]. If the API object is to be deleted, Run deletes it.
func (s *Sink) PodFinished(pod runtime.PodRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range []kind{ofStatic, ofPod} {
		if e := s.entries[entryKey{pod.UID, k}]; e != nil && e.own != nil { // else its status is to come
			s.plan(e, time.Now())
			s.poke()
		}
	}
}

// PodGone implements [status.Sink]. It deletes the mirror pod of a static pod. If that fails, or the
// pods have not been listed, Run deletes the mirror pod. Without Options.Orphaned, the error is returned.
func (s *Sink) PodGone(ctx context.Context, ref runtime.PodRef, _ *v1.PodStatus) error {
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	created, err := s.end(ctx, ref.UID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	successor := s.static[name] != ""
	s.mu.Unlock()
	if successor || !s.pods.Synced() {
		return nil
	}
	mirror, ok := s.pods.ByName(name.Namespace, name.Name)
	if !ok {
		mirror = created
	}
	if mirror == nil || !podspec.IsMirror(mirror) {
		return nil
	}
	if err = s.remove(ctx, mirror); err == nil || ctx.Err() != nil || s.opts.Orphaned == nil {
		return err
	}
	after := s.backoff.After(1)
	s.log.Error(err, "The mirror pod of a static pod that is gone cannot be deleted, trying again", "after", after)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	orphan := s.entry(keyOf(mirror), name)
	orphan.unsent, orphan.failures = true, 1
	s.failed(orphan, now)
	s.plan(orphan, now.Add(after))
	s.poke()
	return nil
}

// end forgets the entry of the UID, if there is one, when no call for it is under way. If a static pod
// and a pod of the API server have the UID, it forgets the entry of the static pod: the agent does not
// run the other one. It returns the API object if the watch does not have it yet.
func (s *Sink) end(ctx context.Context, uid types.UID) (*v1.Pod, error) {
	s.mu.Lock()
	e := s.entries[entryKey{uid, ofStatic}]
	if e == nil {
		e = s.entries[entryKey{uid, ofPod}]
	}
	s.mu.Unlock()
	if e == nil {
		return nil, nil
	}
	done, err := e.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(e)
	return e.answered, nil
}

// PodsChanged implements [podsource.Observer]. Calls of the API server are made by Run.
func (s *Sink) PodsChanged(c podsource.Change) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.poke()
	for _, pod := range c.Removed {
		s.objectRemoved(pod, now)
	}
	for _, pod := range c.Changed {
		s.objectChanged(pod, now)
	}
	if !c.Complete {
		return
	}
	for _, e := range s.entries {
		// What the last call returned may be gone, without an event of the watch.
		if e.unsent || e.answered != nil {
			s.plan(e, now)
		}
		e.answered = nil
	}
}

// entryOf returns the entry of the API object, nil if there is none. A mirror pod belongs to the entry
// of its static pod. s.mu is held.
func (s *Sink) entryOf(obj *v1.Pod) *entry {
	if static, ok := s.static[types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}]; ok && podspec.IsMirror(obj) {
		return s.entries[entryKey{static, ofStatic}]
	}
	return s.entries[keyOf(obj)]
}

func (s *Sink) objectRemoved(obj *v1.Pod, now time.Time) {
	if static, ok := s.static[types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}]; ok {
		e := s.entries[entryKey{static, ofStatic}]
		e.sendAgain = time.Time{}
		s.plan(e, now) // the name is free for a mirror pod
	}
	e := s.entryOf(obj)
	if e == nil {
		return
	}
	if e.answered != nil && e.answered.UID == obj.UID {
		e.answered = nil
	}
	if e.own == nil {
		s.forget(e)
	}
}

// objectChanged puts the pod on the agenda if the API object is not as the sink has left it.
func (s *Sink) objectChanged(obj *v1.Pod, now time.Time) {
	e := s.entryOf(obj)
	if e == nil {
		if obj.DeletionTimestamp == nil && !podspec.IsMirror(obj) {
			return // its status will come
		}
		e = s.entry(keyOf(obj), types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name})
		s.plan(e, now.Add(checkPeriod))
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
	s.plan(e, now)
}
