package podworkerstest_test

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/internal/podworkerstest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// defective is workers with one defect: in what they are given, in what they answer, or in their calls. A function that
// is nil changes nothing.
type defective struct {
	podworkers.Workers
	calls   calls
	started bool // Run was called

	// update gives the workers the update, or another one.
	update      func(u podworkers.Update, give func(podworkers.Update))
	state       func(uid types.UID, s podworkers.State) podworkers.State
	desired     func(pods []*v1.Pod) []*v1.Pod
	known       func(desired []*v1.Pod, known map[types.UID]podworkers.State)
	run         func(ctx context.Context, run func(context.Context) error) error
	drain       func()
	terminating func(fullName string) bool
	predecessor func(uid types.UID) (runtime.PodRef, bool)
}

func (d *defective) Run(ctx context.Context) error {
	d.started = true
	if d.run != nil {
		return d.run(ctx, d.Workers.Run)
	}
	return d.Workers.Run(ctx)
}

func (d *defective) UpdatePod(u podworkers.Update) {
	if d.update != nil {
		d.update(u, d.Workers.UpdatePod)
		return
	}
	d.Workers.UpdatePod(u)
}

func (d *defective) SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.State {
	if d.desired != nil {
		desired = d.desired(desired)
	}
	known := d.Workers.SyncKnownPods(desired)
	if d.known != nil {
		d.known(desired, known)
	}
	return known
}

func (d *defective) Drain() {
	if d.drain != nil {
		d.drain()
		return
	}
	d.Workers.Drain()
}

func (d *defective) State(uid types.UID) podworkers.State {
	s := d.Workers.State(uid)
	if d.state != nil {
		s = d.state(uid, s)
	}
	return s
}

func (d *defective) TerminatingByFullName(fullName string) bool {
	if d.terminating != nil {
		return d.terminating(fullName)
	}
	return d.Workers.TerminatingByFullName(fullName)
}

func (d *defective) Predecessor(uid types.UID) (runtime.PodRef, bool) {
	if d.predecessor != nil {
		return d.predecessor(uid)
	}
	return d.Workers.Predecessor(uid)
}

// syncPod calls SyncPod with the arguments that the workers have given.
type syncPod func(ctx context.Context) (podworkers.Result, error)

// calls is the syncer as the defective workers call it.
type calls struct {
	podworkers.Syncer
	sync      func(ctx context.Context, call syncPod) (podworkers.Result, error)
	terminate func(pod *v1.Pod, t podworkers.Termination) podworkers.Termination
	result    func(err error) error // of SyncTerminatingPod
	updated   func(pod *v1.Pod) *v1.Pod
	newer     func(ref runtime.PodRef, after runtime.Mark, read func(runtime.Mark) (*runtime.PodStatus,
		error)) (*runtime.PodStatus, error)
}

func (c *calls) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (podworkers.Result, error) {
	call := func(ctx context.Context) (podworkers.Result, error) { return c.Syncer.SyncPod(ctx, typ, pod, status) }
	if c.sync != nil {
		return c.sync(ctx, call)
	}
	return call(ctx)
}

func (c *calls) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus,
	t podworkers.Termination) error {
	if c.terminate != nil {
		t = c.terminate(pod, t)
	}
	err := c.Syncer.SyncTerminatingPod(ctx, pod, status, t)
	if c.result != nil {
		err = c.result(err)
	}
	return err
}

func (c *calls) Updated(pod *v1.Pod) {
	if c.updated != nil {
		pod = c.updated(pod)
	}
	c.Syncer.Updated(pod)
}

// cache is the cache as the defective workers read it.
type cache struct {
	runtime.StatusCache
	c *calls
}

func (c cache) Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	read := func(after runtime.Mark) (*runtime.PodStatus, error) { return c.StatusCache.Newer(ctx, ref, after) }
	if c.c.newer != nil {
		return c.c.newer(ref, after, read)
	}
	return read(after)
}

// TestDefective runs the suite on workers with the defect of this process.
func TestDefective(t *testing.T) {
	defect, broken := defects[testenv.Defect()]
	if !broken {
		t.Skip("this process has no defect")
	}
	podworkerstest.Suite(t, podworkerstest.Factory{New: func(t *testing.T, syncer podworkers.Syncer,
		statuses runtime.StatusCache) podworkers.Workers {
		d := &defective{calls: calls{Syncer: syncer}}
		defect.apply(d)
		d.Workers = newWorkers(t, &d.calls, cache{statuses, &d.calls})
		return d
	}})
}

func TestTheSuiteFindsDefects(t *testing.T) {
	found := map[string]string{}
	for name, defect := range defects {
		found[name] = defect.found
	}
	testenv.FindsDefects(t, "TestDefective", found, podworkerstest.Cases(), nil)
}

// defect is found by the test of that name.
type defect struct {
	found string
	apply func(d *defective)
}

// loses is a defect that ignores some updates.
func loses(found string, lost func(d *defective, u podworkers.Update, s podworkers.State) bool) defect {
	return defect{found, func(d *defective) {
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			if !lost(d, u, d.Workers.State(uidOf(u))) {
				give(u)
			}
		}
	}}
}

// alters is a defect in what updates say. The update may be changed; its kill is a copy.
func alters(found string, alter func(u *podworkers.Update, s podworkers.State)) defect {
	return defect{found, func(d *defective) {
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			if u.Kill != nil {
				u.Kill = new(*u.Kill)
			}
			alter(&u, d.Workers.State(uidOf(u)))
			give(u)
		}
	}}
}

// syncs is a defect in calls of SyncPod.
func syncs(found string, sync func(ctx context.Context, call syncPod) (podworkers.Result, error)) defect {
	return defect{found, func(d *defective) { d.calls.sync = sync }}
}

// calledTooSoon is a defect that calls SyncPod in UpdatePod.
func calledTooSoon(found string, when func(d *defective, u podworkers.Update, s podworkers.State) bool) defect {
	return defect{found, func(d *defective) {
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			give(u)
			if u.Pod != nil && when(d, u, d.Workers.State(uidOf(u))) {
				_, _ = d.calls.Syncer.SyncPod(context.Background(), u.Type, u.Pod,
					&runtime.PodStatus{PodRef: runtime.RefOf(u.Pod)})
			}
		}
	}}
}

func uidOf(u podworkers.Update) types.UID {
	switch {
	case u.Pod != nil:
		return u.Pod.UID
	case u.Orphan != nil:
		return u.Orphan.UID
	default:
		return ""
	}
}

func without(pod *v1.Pod, annotation string) *v1.Pod {
	if pod != nil {
		pod = pod.DeepCopy()
		delete(pod.Annotations, annotation)
	}
	return pod
}

// defects has, by its name, each defect and the test that finds it.
var defects = map[string]defect{
	"does not say when a pod has started": {"Life", func(d *defective) {
		d.state = func(_ types.UID, s podworkers.State) podworkers.State {
			s.StartedAt = s.TerminatedAt
			return s
		}
	}},
	"keeps the first spec": {"MergedUpdates", func(d *defective) {
		first := map[types.UID]*v1.Pod{}
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			if first[u.Pod.UID] == nil {
				first[u.Pod.UID] = u.Pod
			}
			u.Pod = first[u.Pod.UID]
			give(u)
		}
	}},
	"takes an old status": {"FreshStatus", func(d *defective) {
		d.calls.newer = func(_ runtime.PodRef, _ runtime.Mark, read func(runtime.Mark) (*runtime.PodStatus,
			error)) (*runtime.PodStatus, error) {
			return read(0)
		}
	}},
	"does not sync when it was asked to": syncs("RetryAfter", func(ctx context.Context, call syncPod) (podworkers.Result, error) {
		r, err := call(ctx)
		r.RetryAfter = 0
		return r, err
	}),
	"does not repeat a failed call": {"FailedCalls", func(d *defective) {
		d.calls.result = func(error) error { return nil }
	}},
	"ends a pod by a panic": syncs("Panic", func(ctx context.Context, call syncPod) (r podworkers.Result, err error) {
		defer func() {
			if recover() != nil {
				err = &runtime.TerminalError{Reason: "Panic"}
			}
		}()
		return call(ctx)
	}),
	"calls without a status": {"UnreadableStatus", func(d *defective) {
		d.calls.newer = func(ref runtime.PodRef, after runtime.Mark, read func(runtime.Mark) (*runtime.PodStatus,
			error)) (*runtime.PodStatus, error) {
			status, err := read(after)
			if err != nil {
				return &runtime.PodStatus{PodRef: ref}, nil
			}
			return status, nil
		}
	}},
	"syncs one pod at a time": {"HungCall", func(d *defective) {
		one := make(chan struct{}, 1)
		d.calls.sync = func(ctx context.Context, call syncPod) (podworkers.Result, error) {
			select {
			case one <- struct{}{}:
				defer func() { <-one }()
				return call(ctx)
			case <-ctx.Done():
				return podworkers.Result{}, context.Cause(ctx)
			}
		}
	}},
	"does not cancel a sync": syncs("KillCancelsSync", func(ctx context.Context, call syncPod) (podworkers.Result, error) {
		return call(context.WithoutCancel(ctx))
	}),
	"syncs a pod that was killed": calledTooSoon("KillIsNotUndone", func(_ *defective, u podworkers.Update, s podworkers.State) bool {
		return u.Type == podworkers.Change && s.TerminationRequested()
	}),
	"terminates with the grace period of the spec": {"GracePeriod", func(d *defective) {
		d.calls.terminate = func(pod *v1.Pod, t podworkers.Termination) podworkers.Termination {
			t.GracePeriod = pod.Spec.TerminationGracePeriodSeconds
			return t
		}
	}},
	"ignores a shorter grace period": alters("ShorterGracePeriod", func(u *podworkers.Update, s podworkers.State) {
		if u.Kill != nil && s.TerminationRequested() {
			u.Kill.GracePeriod = nil
		}
	}),
	"ignores a late eviction": alters("LateEviction", func(u *podworkers.Update, s podworkers.State) {
		if u.Kill != nil && s.TerminationRequested() {
			u.Kill.Evict, u.Kill.Status = false, nil
		}
	}),
	"calls Done at once": alters("Done", func(u *podworkers.Update, _ podworkers.State) {
		if u.Kill != nil && u.Kill.Done != nil {
			u.Kill.Done()
			u.Kill.Done = nil
		}
	}),
	"loses kills before Run": loses("KillBeforeStart", func(d *defective, u podworkers.Update, _ podworkers.State) bool {
		return u.Kill != nil && !d.started
	}),
	"does not see that a pod is deleted": alters("EndsInAPI", func(u *podworkers.Update, _ podworkers.State) {
		u.Pod = u.Pod.DeepCopy()
		u.Pod.DeletionTimestamp = nil
	}),
	"ends a pod whose call has failed": syncs("EndsByItself", func(ctx context.Context, call syncPod) (podworkers.Result, error) {
		r, err := call(ctx)
		if r.Terminal {
			err = nil
		}
		return r, err
	}),
	"repeats what has failed for good": syncs("FailureForGood", func(ctx context.Context, call syncPod) (podworkers.Result, error) {
		r, err := call(ctx)
		if errors.As(err, new(*runtime.TerminalError)) {
			err = errors.New("failed")
		}
		return r, err
	}),
	"reports the last reason": {"FailureForGoodAndKill", func(d *defective) {
		d.calls.terminate = func(_ *v1.Pod, t podworkers.Termination) podworkers.Termination {
			if t.Evicted {
				t.Status = func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, "Evicted" }
			}
			return t
		}
	}},
	"loses a start during the end": loses("NextIncarnation", func(_ *defective, u podworkers.Update, s podworkers.State) bool {
		return u.Type == podworkers.Create && s.TerminationRequested()
	}),
	"loses the kill of an incarnation that has not begun": loses("NextIncarnationIsKilled", func(_ *defective, u podworkers.Update, s podworkers.State) bool {
		return u.Kill != nil && s.RestartRequested
	}),
	"keeps the failure of the last incarnation": {"NextIncarnationAfterFailure", func(d *defective) {
		failure := map[types.UID]*runtime.TerminalError{}
		d.state = func(uid types.UID, s podworkers.State) podworkers.State {
			if s.Failure != nil {
				failure[uid] = s.Failure
			}
			s.Failure = failure[uid]
			return s
		}
	}},
	"does not keep names apart": alters("FullName", func(u *podworkers.Update, _ podworkers.State) {
		u.Pod = without(u.Pod, podspec.AnnotationConfigSource)
	}),
	"does not know what a pod waits for": {"FullName", func(d *defective) { d.predecessor = podworkers.Base{}.Predecessor }},
	"loses the kill of a pod that waits": loses("KillWhileWaiting", func(_ *defective, u podworkers.Update, s podworkers.State) bool {
		return u.Kill != nil && s.Waiting
	}),
	"does not see what an earlier agent has started": {"KillOfAnEarlierStart", func(d *defective) {
		d.calls.newer = func(ref runtime.PodRef, after runtime.Mark, read func(runtime.Mark) (*runtime.PodStatus,
			error)) (*runtime.PodStatus, error) {
			status, err := read(after)
			if err == nil {
				status = &runtime.PodStatus{PodRef: ref, Mark: status.Mark}
			}
			return status, err
		}
	}},
	"does not find pods by their name": {"TerminatingByFullName", func(d *defective) { d.terminating = podworkers.Base{}.TerminatingByFullName }},
	"does not hurry an orphan": alters("Orphan", func(u *podworkers.Update, _ podworkers.State) {
		if u.Orphan != nil {
			u.Kill.GracePeriod = nil
		}
	}),
	"loses a pod while its orphan ends": loses("PodAfterOrphan", func(_ *defective, u podworkers.Update, s podworkers.State) bool {
		return u.Kill == nil && s.Orphan
	}),
	"returns pods that are not known": {"SyncKnownPods", func(d *defective) {
		d.known = func(desired []*v1.Pod, known map[types.UID]podworkers.State) {
			for _, pod := range desired {
				known[pod.UID] = d.Workers.State(pod.UID)
			}
		}
	}},
	"does not end pods that are not desired": {"UndesiredPod", func(d *defective) {
		var pods []*v1.Pod
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			pods = append(pods, u.Pod)
			give(u)
		}
		d.desired = func([]*v1.Pod) []*v1.Pod { return pods }
	}},
	"takes an unknown pod for gone": {"UnknownPod", func(d *defective) {
		d.state = func(_ types.UID, s podworkers.State) podworkers.State {
			s.Synced = true
			return s
		}
	}},
	"starts a pod that was to be known": alters("OnlyKnown", func(u *podworkers.Update, _ podworkers.State) { u.OnlyKnown = false }),
	"hands over another spec": {"Updated", func(d *defective) {
		d.calls.updated = (*v1.Pod).DeepCopy
	}},
	"cannot be drained": {"Drain", func(d *defective) { d.drain = func() {} }},
	"drains only what is new": {"DrainOfPodsToStart", func(d *defective) {
		drained := false
		d.drain = func() { drained = true }
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			if !drained || u.Kill != nil || d.Workers.State(uidOf(u)).Known() {
				give(u)
			}
		}
	}},
	"runs mirror pods": alters("InvalidUpdate", func(u *podworkers.Update, _ podworkers.State) {
		u.Pod = without(u.Pod, podspec.AnnotationConfigMirror)
	}),
	"calls before Run": calledTooSoon("BeforeRun", func(d *defective, u podworkers.Update, _ podworkers.State) bool { return !d.started }),
	"does not wait for calls": {"RunJoins", func(d *defective) {
		d.run = func(ctx context.Context, run func(context.Context) error) error {
			go func() { _ = run(ctx) }()
			<-ctx.Done()
			return nil
		}
	}},
	"runs twice": {"RunTwice", func(d *defective) {
		d.run = func(ctx context.Context, run func(context.Context) error) error {
			if err := run(ctx); !errors.Is(err, runtime.ErrAlreadyRunning) {
				return err
			}
			return nil
		}
	}},
	"loses one kill of many": {"Random", func(d *defective) {
		kills := 0
		d.update = func(u podworkers.Update, give func(podworkers.Update)) {
			if u.Kill != nil {
				kills++
			}
			if u.Kill == nil || kills != 5 {
				give(u)
			}
		}
	}},
}
