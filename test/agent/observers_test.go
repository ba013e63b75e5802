package agent_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// recording is a history of the embedder.
type recording struct {
	history.Store
	record func()
}

func (r recording) Record(runtime.Record) { r.record() }

// observers returns functions that have an observer of an agent replaced by one that calls broken. Each field of
// Options.Observe is one.
func observers(t *testing.T, broken func()) map[string]func(*kubeletkit.Options) {
	t.Helper()
	all := map[string]func(*kubeletkit.Options){
		"History.Record": func(o *kubeletkit.Options) {
			o.Override.History = kubeletkit.Wrap(func(h history.Store) history.Store { return recording{h, broken} })
		},
	}
	observe := reflect.TypeFor[kubeletkit.Observe]()
	for i := range observe.NumField() {
		switch f := observe.Field(i); {
		case f.Type.Kind() == reflect.Func:
			hook := reflect.MakeFunc(f.Type, func([]reflect.Value) []reflect.Value { broken(); return nil })
			all[f.Name] = func(o *kubeletkit.Options) { reflect.ValueOf(&o.Observe).Elem().Field(i).Set(hook) }
		case f.Name == "History": // it has settings only
		case f.Name == "Logger": // is called directly
		default:
			t.Errorf("the test does not know the observer %s", f.Name)
		}
	}
	return all
}

// Whatever an observer does, pods start, are restarted by their probes, and end, and the agent ends.
func TestObserversHoldUpNothing(t *testing.T) {
	for name := range observers(t, nil) {
		for _, fault := range []string{"blocks", "panics"} {
			t.Run(name+" "+fault, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					var calls atomic.Int64
					breaks := testenv.BrokenObserver(t, fault == "panics")
					broken := func() {
						calls.Add(1)
						breaks()
					}
					n := startNodeWith(t, dir, fake.New(fake.Options{}), observers(t, broken)[name])
					web := testpod.With(makePod("web"),
						testpod.Volumes(v1.Volume{Name: "scratch",
							VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}))
					check := v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}
					web.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: check, PeriodSeconds: 1}
					dying := makePod("dying")
					dying.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: check, PeriodSeconds: 1,
						FailureThreshold: 1}
					n.runtime.Script(fake.Target{Pod: "dying"},
						fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) {
							return runtime.ExecResult{ExitCode: 1}, nil
						}})
					n.source.Set(web, dying)
					pods := n.after(5 * time.Minute)
					assert.Equal(t, v1.PodRunning, pods["web"].Status.Phase)
					assert.True(t, pods["web"].Status.ContainerStatuses[0].Ready)
					assert.Greater(t, pods["dying"].Status.ContainerStatuses[0].RestartCount, int32(1))
					require.NoError(t, n.Healthy())
					require.NoError(t, n.Ready())
					assert.Positive(t, calls.Load(), "the observer was called")

					n.source.Set()
					assert.Empty(t, n.after(2*time.Minute))
					assert.Empty(t, held(t, n.runtime))
					began := time.Now()
					n.stop(t)
					assert.Less(t, time.Since(began), 10*time.Second)
				})
			})
		}
	}
}

// What was emitted is delivered when Run has returned.
func TestRunWaitsForObservers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var emitted, received atomic.Int64
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Observe.EveryEvent = func(runtime.Event) {
				time.Sleep(100 * time.Millisecond)
				received.Add(1)
			}
			o.Observe.Event = func(runtime.Event) { emitted.Add(1) }
		})
		n.source.Set(makePod("web"), makePod("db"))
		time.Sleep(200 * time.Millisecond)
		n.stop(t)
		assert.Equal(t, emitted.Load(), received.Load())
		assert.Positive(t, received.Load())
	})
}

// faulty is a runtime whose calls panic, or return nil pods.
type faulty struct {
	runtime.Runtime
	fault atomic.Value // string
}

func (r *faulty) Unwrap() any { return r.Runtime }

func (r *faulty) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	switch r.fault.Load() {
	case "ListPods panics":
		panic("broken")
	case "ListPods has a nil pod":
		pods, err := r.Runtime.ListPods(ctx)
		return append(pods, nil), err
	}
	return r.Runtime.ListPods(ctx)
}

func (r *faulty) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	switch r.fault.Load() {
	case "InspectPod panics":
		panic("broken")
	case "InspectPod returns nil":
		return nil, nil
	}
	return r.Runtime.InspectPod(ctx, ref)
}

func (r *faulty) Check(ctx context.Context) error {
	if r.fault.Load() == "Check panics" {
		panic("broken")
	}
	return r.Runtime.Check(ctx)
}

// A runtime that panics, or returns nil, fails: the agent goes on when it works again.
func TestARuntimeThatPanics(t *testing.T) {
	for _, fault := range []string{"ListPods panics", "ListPods has a nil pod", "InspectPod panics",
		"InspectPod returns nil", "Check panics"} {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := &faulty{}
				rt.fault.Store(fault)
				n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
					rt.Runtime, o.Runtime = o.Runtime, rt
				})
				n.source.Set(makePod("web"))
				n.after(10 * time.Minute)
				rt.fault.Store("")
				assert.Equal(t, v1.PodRunning, n.after(2 * time.Minute)["web"].Status.Phase)
				rt.fault.Store(fault)
				n.source.Set()
				n.after(time.Minute)
				rt.fault.Store("")
				assert.Empty(t, n.after(5*time.Minute))
				assert.Empty(t, held(t, n.runtime))
				n.stop(t)
			})
		})
	}
}
