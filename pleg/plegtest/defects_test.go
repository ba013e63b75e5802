package plegtest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// defective is a generator with one defect: in itself, or in what it gets from the runtime and the cache. A function
// that is nil changes nothing.
type defective struct {
	pleg.Generator
	rt *plegtest.Runtime
	// out has the events if they pass through change. change returns those that are reported.
	out    chan pleg.PodEvents
	change func(events []pleg.Event) []pleg.Event
	// blocks means that Run returns when the reader has received all events.
	blocks  bool
	run     func(ctx context.Context) error
	watch   func() <-chan pleg.PodEvents
	healthy func() error
	relist  func()
	release func(uid types.UID)

	lists func(ctx context.Context, pods []*runtime.Pod) []*runtime.Pod
	// listContext and inspectContext return the context of the calls.
	listContext, inspectContext func(ctx context.Context) context.Context
	newer                       func(ref runtime.PodRef, read reader) (*runtime.PodStatus, error)
}

// reader reads a status through the cache.
type reader func() (*runtime.PodStatus, error)

func (d *defective) Run(ctx context.Context) error {
	if d.run != nil {
		return d.run(ctx)
	}
	if d.change == nil {
		return d.Generator.Run(ctx)
	}
	var forward sync.WaitGroup
	forward.Go(func() {
		defer close(d.out)
		for item := range d.Generator.Watch() {
			if item.Events = d.change(item.Events); len(item.Events) == 0 {
				continue
			}
			if d.blocks {
				d.out <- item
				continue
			}
			select {
			case d.out <- item:
			case <-ctx.Done():
			}
		}
	})
	err := d.Generator.Run(ctx)
	forward.Wait()
	return err
}

func (d *defective) Watch() <-chan pleg.PodEvents {
	switch {
	case d.watch != nil:
		return d.watch()
	case d.change != nil:
		return d.out
	default:
		return d.Generator.Watch()
	}
}

func (d *defective) Healthy() error {
	if d.healthy != nil {
		return d.healthy()
	}
	return d.Generator.Healthy()
}

func (d *defective) Relist() {
	if d.relist != nil {
		d.relist()
		return
	}
	d.Generator.Relist()
}

func (d *defective) Release(uid types.UID) {
	if d.release != nil {
		d.release(uid)
		return
	}
	d.Generator.Release(uid)
}

// source is the runtime as the defective generator sees it.
type source struct {
	*plegtest.Runtime
	d *defective
}

func (s source) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	if s.d.listContext != nil {
		ctx = s.d.listContext(ctx)
	}
	pods, err := s.Runtime.ListPods(ctx)
	if err == nil && s.d.lists != nil {
		pods = s.d.lists(ctx, pods)
	}
	return pods, err
}

// cache is the cache as the defective generator uses it.
type cache struct {
	*runtime.Cache
	d *defective
}

func (c cache) Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	if c.d.inspectContext != nil {
		ctx = c.d.inspectContext(ctx)
	}
	read := func() (*runtime.PodStatus, error) { return c.Cache.Newer(ctx, ref, after) }
	if c.d.newer != nil {
		return c.d.newer(ref, read)
	}
	return read()
}

// TestDefective runs the suite on a generator with the defect of this process.
func TestDefective(t *testing.T) {
	defect, broken := defects[testenv.Defect()]
	if !broken {
		t.Skip("this process has no defect")
	}
	plegtest.Suite(t,
		plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, real *runtime.Cache) pleg.Generator {
			d := &defective{rt: rt, out: make(chan pleg.PodEvents)}
			defect.apply(d)
			d.Generator = pleg.NewEvented(source{rt, d}, cache{real, d}, pleg.EventedOptions{})
			return d
		}})
}

func TestTheSuiteFindsDefects(t *testing.T) {
	found := map[string]string{}
	for name, defect := range defects {
		found[name] = defect.found
	}
	testenv.FindsDefects(t, "TestDefective", found, plegtest.Cases(), nil)
}

// defect is found by the test of that name.
type defect struct {
	found string
	apply func(d *defective)
}

// lists is a defect in the view of the runtime.
func lists(found string, change func(pods []*runtime.Pod) []*runtime.Pod) defect {
	return defect{found, func(d *defective) {
		d.lists = func(_ context.Context, pods []*runtime.Pod) []*runtime.Pod { return change(pods) }
	}}
}

// loses is a defect that does not report some events.
func loses(found string, lost func(all []pleg.Event, e pleg.Event) bool) defect {
	return defect{found, func(d *defective) {
		d.change = func(events []pleg.Event) []pleg.Event {
			all := slices.Clone(events)
			return slices.DeleteFunc(events, func(e pleg.Event) bool { return lost(all, e) })
		}
	}}
}

func ofType(types ...pleg.Type) func([]pleg.Event, pleg.Event) bool {
	return func(_ []pleg.Event, e pleg.Event) bool { return slices.Contains(types, e.Type) }
}

func started(all []pleg.Event, e pleg.Event) bool {
	return slices.Contains(all, pleg.Event{Type: pleg.ContainerStarted, ContainerID: e.ContainerID, Name: e.Name})
}

// defects has, by its name, each defect and the test that finds it.
var defects = map[string]defect{
	"does not see exited containers": loses("ExistingPods", func(all []pleg.Event, e pleg.Event) bool {
		return e.Type == pleg.ContainerDied && !started(all, e)
	}),
	"does not report created containers": loses("LifeOfAContainer", ofType(pleg.ContainerChanged)),
	"does not report sandboxes":          loses("LifeOfAContainer", ofType(pleg.SandboxStarted, pleg.SandboxDied)),
	"reports one event of a change": {"Restart", func(d *defective) {
		d.change = func(events []pleg.Event) []pleg.Event { return events[:1] }
	}},
	"does not report what is gone": loses("GonePod", ofType(pleg.ContainerRemoved, pleg.SandboxRemoved)),
	"lists 100 pods at most": lists("ManyPods", func(pods []*runtime.Pod) []*runtime.Pod {
		return pods[:min(len(pods), 100)]
	}),
	"reports an event again": {"Idle", func(d *defective) {
		d.change = func(events []pleg.Event) []pleg.Event { return append(events, events[0]) }
	}},
	"inspects pods that do not change": {"Idle", func(d *defective) {
		d.lists = func(ctx context.Context, pods []*runtime.Pod) []*runtime.Pod {
			for _, p := range pods {
				_, _ = d.rt.InspectPod(ctx, p.PodRef)
			}
			return pods
		}
	}},
	"does not merge events": {"SlowReader", func(d *defective) {
		d.out = make(chan pleg.PodEvents, 1000)
		d.change = func(events []pleg.Event) []pleg.Event { return events }
	}},
	"does not report what is over": loses("StateThatOnlyTheCacheSaw", started),
	"has events before the status": {"CacheIsNewer", func(d *defective) {
		d.newer = func(ref runtime.PodRef, _ reader) (*runtime.PodStatus, error) {
			return d.rt.InspectPod(context.Background(), ref)
		}
	}},
	"loses a removal": {"Random", func(d *defective) {
		n := 0
		d.change = func(events []pleg.Event) []pleg.Event {
			return slices.DeleteFunc(events, func(e pleg.Event) bool {
				if e.Type == pleg.ContainerRemoved {
					n++
				}
				return n == 10 && e.Type == pleg.ContainerRemoved
			})
		}
	}},
	"waits for a pod that hangs": {"HungInspection", func(d *defective) {
		one := make(chan struct{}, 1)
		d.newer = func(_ runtime.PodRef, read reader) (*runtime.PodStatus, error) {
			one <- struct{}{}
			defer func() { <-one }()
			return read()
		}
	}},
	"gives up after a failed inspection": {"FailedInspection", func(d *defective) {
		var failed sync.Map
		d.newer = func(ref runtime.PodRef, read reader) (*runtime.PodStatus, error) {
			if err, before := failed.Load(ref.UID); before {
				return nil, err.(error)
			}
			status, err := read()
			if err != nil {
				failed.Store(ref.UID, err)
			}
			return status, err
		}
	}},
	"is healthy while lists fail": {"FailedList", func(d *defective) { d.healthy = func() error { return nil } }},
	"hides the cause": {"FailedList", func(d *defective) {
		d.healthy = func() error {
			if err := d.Generator.Healthy(); err != nil {
				return errors.New("not healthy")
			}
			return nil
		}
	}},
	"is healthy while lists hang": {"HungList", func(d *defective) { d.healthy = func() error { return nil } }},
	"lists for Healthy": {"HealthyHasNoSideEffects", func(d *defective) {
		d.healthy = func() error {
			_, _ = d.rt.ListPods(context.Background())
			return d.Generator.Healthy()
		}
	}},
	"is healthy after Run": {"HealthyHasNoSideEffects", func(d *defective) {
		var ended atomic.Bool
		d.run = func(ctx context.Context) error {
			defer ended.Store(true)
			return d.Generator.Run(ctx)
		}
		d.healthy = func() error {
			if ended.Load() {
				return nil
			}
			return d.Generator.Healthy()
		}
	}},
	"runs twice": {"RunTwice", func(d *defective) {
		d.run = func(ctx context.Context) error {
			if err := d.Generator.Run(ctx); !errors.Is(err, runtime.ErrAlreadyRunning) {
				return err
			}
			return nil
		}
	}},
	"has another channel for each Watch": {"Watch", func(d *defective) {
		d.watch = func() <-chan pleg.PodEvents { return make(chan pleg.PodEvents) }
	}},
	"returns the end of the context": {"EndedContext", func(d *defective) {
		d.run = func(ctx context.Context) error { return errors.Join(d.Generator.Run(ctx), ctx.Err()) }
	}},
	"waits for lists": {"EndsWhileAListHangs", func(d *defective) { d.listContext = context.WithoutCancel }},
	"waits for inspections": {"EndsWhileAnInspectionHangs", func(d *defective) {
		d.inspectContext = context.WithoutCancel
	}},
	"waits for the reader": {"EndsWhileEventsWait", func(d *defective) {
		d.blocks, d.change = true, func(events []pleg.Event) []pleg.Event { return events }
	}},
	"does not relist":  {"Relist", func(d *defective) { d.relist = func() {} }},
	"does not release": {"Hold", func(d *defective) { d.release = func(types.UID) {} }},
}
