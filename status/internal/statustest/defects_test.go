package statustest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// defective is a manager with one defect, and a defective access to its sink. A function that is nil changes nothing.
type defective struct {
	status.Manager
	run         func(ctx context.Context) error
	get         func(uid types.UID) (v1.PodStatus, bool)
	pods        func() []*v1.Pod
	set         func(pod *v1.Pod, s v1.PodStatus)
	terminate   func(pod *v1.Pod)
	podFinished func(pod runtime.PodRef)
	recheck     func()
	podEnded    func(pod runtime.PodRef)
	forget      func(uid types.UID)
	prune       func(keep func(types.UID) bool)
	healthy     func() error

	mayRun  func(types.UID) bool
	deliver func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error)
	gone    func(ctx context.Context, s status.Sink, pod runtime.PodRef, last *v1.PodStatus) error
	watch   func(ctx context.Context)
}

func (d *defective) Run(ctx context.Context) error {
	if d.run != nil {
		return d.run(ctx)
	}
	return d.Manager.Run(ctx)
}

func (d *defective) Get(uid types.UID) (v1.PodStatus, bool) {
	if d.get != nil {
		return d.get(uid)
	}
	return d.Manager.Get(uid)
}

func (d *defective) Pods() []*v1.Pod {
	if d.pods != nil {
		return d.pods()
	}
	return d.Manager.Pods()
}

func (d *defective) Set(pod *v1.Pod, s v1.PodStatus) {
	if d.set != nil {
		d.set(pod, s)
		return
	}
	d.Manager.Set(pod, s)
}

func (d *defective) Terminate(pod *v1.Pod) {
	if d.terminate != nil {
		d.terminate(pod)
		return
	}
	d.Manager.Terminate(pod)
}

func (d *defective) PodFinished(pod runtime.PodRef) {
	if d.podFinished != nil {
		d.podFinished(pod)
		return
	}
	d.Manager.PodFinished(pod)
}

func (d *defective) Recheck() {
	if d.recheck != nil {
		d.recheck()
		return
	}
	d.Manager.Recheck()
}

func (d *defective) PodEnded(pod runtime.PodRef) {
	if d.podEnded != nil {
		d.podEnded(pod)
		return
	}
	d.Manager.PodEnded(pod)
}

func (d *defective) Forget(uid types.UID) {
	if d.forget != nil {
		d.forget(uid)
		return
	}
	d.Manager.Forget(uid)
}

func (d *defective) Prune(keep func(types.UID) bool) {
	if d.prune != nil {
		d.prune(keep)
		return
	}
	d.Manager.Prune(keep)
}

func (d *defective) Healthy() error {
	if d.healthy != nil {
		return d.healthy()
	}
	return d.Manager.Healthy()
}

// sink is the sink as the defective manager uses it.
type sink struct {
	status.Sink
	d *defective
}

func (s *sink) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	if s.d.deliver != nil {
		return s.d.deliver(ctx, s.Sink, pod, st)
	}
	return s.Sink.Deliver(ctx, pod, st)
}

func (s *sink) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	if s.d.gone != nil {
		return s.d.gone(ctx, s.Sink, pod, last)
	}
	return s.Sink.PodGone(ctx, pod, last)
}

func (s *sink) WatchReceiver(ctx context.Context, changed func(types.UID)) {
	if s.d.watch != nil {
		s.d.watch(ctx)
		return
	}
	s.Sink.WatchReceiver(ctx, changed)
}

// defect is found by the test of that name.
type defect struct {
	found string
	apply func(d *defective)
}

// delivers is a defect in deliveries.
func delivers(
	found string, deliver func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error),
) defect {
	return defect{found, func(d *defective) { d.deliver = deliver }}
}

// errs is a defect in the treatment of errors of deliveries.
func errs(found string, change func(err error) error) defect {
	return delivers(found, func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result,
		error) {
		res, err := s.Deliver(ctx, pod, st)
		return res, change(err)
	})
}

var errDefect = errors.New("defect")

// defects has, by its name, each defect and the test that finds it.
var defects = map[string]defect{
	"knows every pod": {"Unknown", func(d *defective) {
		d.get = func(uid types.UID) (v1.PodStatus, bool) {
			s, _ := d.Manager.Get(uid)
			return s, true
		}
	}},
	"keeps the first status": {"KeepsTheLatest", func(d *defective) {
		d.set = func(pod *v1.Pod, s v1.PodStatus) {
			if _, known := d.Manager.Get(pod.UID); !known {
				d.Manager.Set(pod, s)
			}
		}
	}},
	"does not copy statuses": {"CopiesStatuses", func(d *defective) {
		given := map[types.UID]v1.PodStatus{}
		d.set = func(pod *v1.Pod, s v1.PodStatus) { given[pod.UID] = s }
		d.get = func(uid types.UID) (v1.PodStatus, bool) { s, ok := given[uid]; return s, ok }
	}},
	"has phases go back": {"PhaseDoesNotGoBack", func(d *defective) {
		given := map[types.UID]v1.PodStatus{}
		d.set = func(pod *v1.Pod, s v1.PodStatus) { given[pod.UID] = *s.DeepCopy() }
		d.get = func(uid types.UID) (v1.PodStatus, bool) { s, ok := given[uid]; return s, ok }
	}},
	"restarts what has ended": {"EndedContainerStaysEnded", func(d *defective) {
		d.set = func(pod *v1.Pod, s v1.PodStatus) {
			pod = pod.DeepCopy()
			pod.Spec.RestartPolicy = v1.RestartPolicyAlways
			d.Manager.Set(pod, s)
		}
	}},
	"does not terminate":       {"Terminate", func(d *defective) { d.terminate = func(*v1.Pod) {} }},
	"has no pods":              {"Pods", func(d *defective) { d.pods = func() []*v1.Pod { return nil } }},
	"does not prune":           {"ForgetAndPrune", func(d *defective) { d.prune = func(func(types.UID) bool) {} }},
	"does not forget":          {"ForgetAndPrune", func(d *defective) { d.forget = func(types.UID) {} }},
	"does not report finished": {"DeliversTermination", func(d *defective) { d.podFinished = func(runtime.PodRef) {} }},
	"does not recheck":         {"Recheck", func(d *defective) { d.recheck = func() {} }},
	"does not report ends":     {"End", func(d *defective) { d.podEnded = func(runtime.PodRef) {} }},
	"ignores ends of unknown pods": {"EndOfUnknownPod", func(d *defective) {
		d.podEnded = func(pod runtime.PodRef) { d.Manager.Forget(pod.UID) }
	}},
	"is always healthy": {"Hang", func(d *defective) { d.healthy = func() error { return nil } }},
	"is never healthy":  {"Hang", func(d *defective) { d.healthy = func() error { return errDefect } }},
	"delivers final phases at once": {"HoldsBackFinalPhase", func(d *defective) {
		d.mayRun = func(types.UID) bool { return false }
	}},
	"runs twice": {"RunOnce", func(d *defective) {
		d.run = func(ctx context.Context) error {
			if err := d.Manager.Run(ctx); !errors.Is(err, runtime.ErrAlreadyRunning) {
				return err
			}
			return nil
		}
	}},
	"leaves calls behind": {"RunJoins", func(d *defective) {
		d.run = func(ctx context.Context) error {
			go func() { _ = d.Manager.Run(ctx) }()
			<-ctx.Done()
			return nil
		}
	}},
	"drops what was set before Run": {"DeliversWhatWasSetBeforeRun", func(d *defective) {
		runs := make(chan struct{})
		d.run = func(ctx context.Context) error {
			close(runs)
			return d.Manager.Run(ctx)
		}
		d.set = func(pod *v1.Pod, s v1.PodStatus) {
			select {
			case <-runs:
				d.Manager.Set(pod, s)
			default:
			}
		}
	}},

	"delivers the first status only": {"DeliversTheLatest", func(d *defective) {
		var delivered sync.Map
		d.deliver = func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
			if _, again := delivered.LoadOrStore(pod.UID, true); again {
				return status.Result{}, nil
			}
			return s.Deliver(ctx, pod, st)
		}
	}},
	"delivers twice": delivers("DeliversChangesOnly",
		func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
			_, _ = s.Deliver(ctx, pod, st)
			return s.Deliver(ctx, pod, st)
		}),
	"makes calls at the same time": delivers("OneDeliveryPerPod",
		func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
			go func() { _, _ = s.Deliver(ctx, pod, st) }()
			return s.Deliver(ctx, pod, st)
		}),
	"delivers one pod at a time": {"PodsSideBySide", func(d *defective) {
		one := make(chan struct{}, 1)
		d.deliver = func(ctx context.Context, s status.Sink, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
			one <- struct{}{}
			defer func() { <-one }()
			return s.Deliver(ctx, pod, st)
		}
	}},
	"does not repeat failures": errs("RepeatsFailures", func(error) error { return nil }),
	"repeats what is gone": errs("ErrGone", func(err error) error {
		if errors.Is(err, status.ErrGone) {
			return errDefect
		}
		return err
	}),
	"gives up what is refused": errs("Refused", func(err error) error {
		if errors.Is(err, status.ErrRefused) {
			return nil
		}
		return err
	}),
	"ignores requests of the sink": {"DeliversAgain", func(d *defective) {
		d.watch = func(ctx context.Context) { <-ctx.Done() }
	}},
	"drops statuses of what is gone": {"DeliversForgotten", func(d *defective) {
		d.forget = func(uid types.UID) {
			if s, ok := d.Manager.Get(uid); ok {
				d.Manager.PodEnded(runtime.PodRef{UID: uid, Name: s.Message})
			}
		}
		d.prune = func(func(types.UID) bool) {}
	}},
	"reports an end once": {"EndIsRepeated", func(d *defective) {
		d.gone = func(ctx context.Context, s status.Sink, pod runtime.PodRef, last *v1.PodStatus) error {
			_ = s.PodGone(ctx, pod, last)
			return nil
		}
	}},
	"reports ends late": {"EndBeforeNextPod", func(d *defective) {
		d.gone = func(ctx context.Context, s status.Sink, pod runtime.PodRef, last *v1.PodStatus) error {
			go func() {
				time.Sleep(5 * time.Second)
				_ = s.PodGone(context.WithoutCancel(ctx), pod, last)
			}()
			return nil
		}
	}},
}
