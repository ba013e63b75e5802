package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
)

// notCalled are the methods that reentry does not call, with the rule of their contracts.
var notCalled = map[string]string{
	"Agent.Parts":                     "returns a value",
	"PodWorkers.SyncKnownPods":        "from the goroutine of UpdatePod only",
	"PodSyncer.SyncPod":               "once at a time for a pod",
	"PodSyncer.SyncTerminatingPod":    "once at a time for a pod",
	"PodSyncer.SyncTerminatingOrphan": "once at a time for a pod",
	"PodSyncer.SyncTerminatedPod":     "once at a time for a pod",
	"SyncHandler.HandlePodAdditions":  "from one goroutine",
	"SyncHandler.HandlePodUpdates":    "from one goroutine",
	"SyncHandler.HandlePodRemoves":    "from one goroutine",
	"SyncHandler.HandlePodReconcile":  "from one goroutine",
	"SyncHandler.HandlePodSyncs":      "from one goroutine",
	"SyncHandler.HandlePodCleanups":   "from one goroutine",
	"SyncHandler.Prepare":             "from one goroutine",
	"SyncHandler.Observe":             "from one goroutine",
	"SyncHandler.CleanupUnderWay":     "from one goroutine",
	"SyncHandler.Stop":                "it ends the handler",
}

// atTheEnd are methods after which no pod starts, or no source is followed.
var atTheEnd = []string{"Agent.Drain", "Agent.DrainByPriority", "PodWorkers.Drain", "PodConfig.Freeze"}

// reentry calls every method of an agent and of its parts. Each callback, hook, metric and wrapper of the agent calls
// enter.
type reentry struct {
	bystander *v1.Pod // is desired, and is not part of the load
	source    podconfig.Source
	dir       string
	ctx       context.Context
	on        atomic.Bool
	within    sync.Map // goroutines that are in enter
	// instead is called with the place in place of the methods, if it is not nil.
	instead func(place string)

	mu            sync.Mutex
	methods, last []method
	visits        map[string]int
	entered       map[string]bool // places where every method was called
	next          int
}

type method struct {
	name string
	call func()
}

// start finds the methods, and has them called from now on.
func (e *reentry) start(ctx context.Context, agent *kubeletkit.Agent) {
	e.ctx, e.visits, e.entered = ctx, map[string]int{}, map[string]bool{}
	add := func(name string, f reflect.Value) {
		m := method{name, func() { e.call(f) }}
		if strings.HasPrefix(name, "Agent.Add") {
			left := atomic.Int64{}
			left.Store(20) // what is added stays
			m.call = func() {
				if left.Add(-1) >= 0 {
					e.call(f)
				}
			}
		}
		switch {
		case slices.Contains(atTheEnd, name):
			e.last = append(e.last, m)
		case notCalled[name] == "":
			e.methods = append(e.methods, m)
		}
	}
	a, parts := reflect.ValueOf(agent), reflect.ValueOf(agent.Parts())
	for i := range a.NumMethod() {
		add("Agent."+a.Type().Method(i).Name, a.Method(i))
	}
	for i := range parts.NumField() {
		part, field := parts.Type().Field(i), parts.Field(i)
		switch {
		case part.Name == "Runtime" || field.Kind() == reflect.Interface && field.IsNil():
			// the runtime is the embedder's
		case field.Kind() == reflect.Func:
			add(part.Name, field)
		case field.Kind() == reflect.Interface:
			for j := range part.Type.NumMethod() {
				name := part.Type.Method(j).Name
				add(part.Name+"."+name, field.Elem().MethodByName(name))
			}
		}
	}
	e.on.Store(true)
}

// end has the methods of atTheEnd called, too.
func (e *reentry) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.methods, e.entered = append(e.methods, e.last...), map[string]bool{}
}

// enter calls every method when it is called for the first time at a place, and then a few from time to time. It
// returns at once in a goroutine that is in enter already.
func (e *reentry) enter(place string) {
	if e.instead != nil {
		e.instead(place)
		return
	}
	if !e.on.Load() || !e.due(place) {
		return
	}
	var stack [64]byte // "goroutine 1 [running]:"
	id := string(bytes.Fields(stack[:goruntime.Stack(stack[:], false)])[1])
	if _, again := e.within.LoadOrStore(id, true); again {
		return
	}
	defer e.within.Delete(id)
	for _, m := range e.take(place) {
		m.call()
	}
}

// every is the number of visits of a place for one that calls some methods.
const every = 256

// due reports whether methods are to be called at the place.
func (e *reentry) due(place string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.visits[place]++
	return !e.entered[place] || e.visits[place]%every == 0
}

// take returns the methods to call at the place.
func (e *reentry) take(place string) (calls []method) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 3
	if !e.entered[place] {
		e.entered[place], n = true, len(e.methods)
	}
	for range n {
		calls = append(calls, e.methods[e.next%len(e.methods)])
		e.next++
	}
	return calls
}

// call calls a function with arguments that concern the bystander, and a context that has ended: it must not wait.
func (e *reentry) call(f reflect.Value) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		args = append(args, e.argument(ctx, f.Type().In(i)))
	}
	f.Call(args)
}

func (e *reentry) argument(ctx context.Context, t reflect.Type) reflect.Value {
	for _, known := range []any{&ctx, e.bystander, e.bystander.UID, []*v1.Pod{e.bystander}, runtime.RefOf(e.bystander),
		&e.source, e.dir, podworkers.Sync,
		&e.bystander.Spec.Containers[0], &runtime.PodStatus{PodRef: runtime.RefOf(e.bystander)},
		&runtime.Pod{PodRef: runtime.RefOf(e.bystander)}} {
		switch v := reflect.ValueOf(known); {
		case v.Type() == t:
			return v
		case v.Kind() == reflect.Pointer && v.Type().Elem() == t && t.Kind() == reflect.Interface:
			return v.Elem()
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		v := reflect.New(t).Elem()
		for i := range t.NumField() {
			if v.Field(i).CanSet() && t.Field(i).Type.PkgPath() != "k8s.io/api/core/v1" {
				v.Field(i).Set(e.argument(ctx, t.Field(i).Type))
			}
		}
		return v
	case reflect.Func:
		return reflect.MakeFunc(t, func([]reflect.Value) (out []reflect.Value) {
			e.enter("function of a caller")
			for i := range t.NumOut() {
				v := reflect.New(t.Out(i)).Elem()
				if v.Kind() == reflect.Bool {
					v.SetBool(true) // everything is kept
				}
				out = append(out, v)
			}
			return out
		})
	default:
		return reflect.Zero(t)
	}
}

// No lock is held during a call of an embedder: each callback, hook, metric and wrapper of this agent calls
// every method of the agent and of its parts, while many pods are replaced, and the agent comes to rest. After a
// deadlock, the time of the bubble stands still until the timeout of go test, which prints all goroutines.
func TestEverythingCallsEverything(t *testing.T) {
	const pods, generations = 24, 3
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		source := podconfigfake.NewSource("test")
		e := &reentry{bystander: makePod("bystander"), source: source, dir: filepath.Join(dir, "other")}
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "web-1"}, fake.Exits(time.Second, 1))
		rt.Script(fake.Target{Pod: "web-2"}, fake.Behavior{StopDelay: 500 * time.Millisecond})
		store, err := checkpoint.New(filepath.Join(dir, "kept"), checkpoint.Options{})
		require.NoError(t, err)
		event := func(name string) runtime.EventFunc { return func(runtime.Event) { e.enter(name) } }
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: dir, Runtime: reRuntime{rt, e}, Sources: []podconfig.Source{reSource{source, e}},
			StatusSink: reSink{statusfake.NewSink(), e}, Checkpoint: store,
			Host:    &runtime.Host{Hostname: "host"},
			HostIPs: func() []string { e.enter("HostIPs"); return []string{"192.0.2.1"} },
			API: kubeletkit.API{
				Objects:    objects.New(),
				NodeLabels: func() map[string]string { e.enter("NodeLabels"); return nil },
				PullSecrets: func(context.Context, *v1.Pod) ([]v1.Secret,
					error) {
					e.enter("PullSecrets")
					return nil, nil
				},
				ServiceEnv: func(context.Context, *v1.Pod) ([]v1.EnvVar,
					error) {
					e.enter("ServiceEnv")
					return nil, nil
				},
			},
			Join:    []lifecycle.Component{reAdmitter{lifecycle.Chain(), e}},
			Volumes: volume.Options{Plugins: []volume.Plugin{rePlugin{e}}},
			Prober:  prober.Options{Handlers: []prober.Handler{reProbe{e}}},
			GC: gc.Options{
				Plan: func(in gc.Input) gc.Removal { e.enter("ContainerPlan"); return gc.Plan(in) },
			},
			Observe: kubeletkit.Observe{
				Event: event("Event"), EveryEvent: event("EveryEvent"),
				Measure: func(m runtime.Measurement) { e.enter(fmt.Sprintf("Measure %T", m)) },
				Logger:  funcr.New(func(string, string) { e.enter("Logger") }, funcr.Options{Verbosity: 5}),
			},
			Override: e.overrides(),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		n := &node{Agent: agent, runtime: rt, source: source, root: dir, cancel: cancel, done: make(chan error, 1)}
		require.NoError(t, agent.Add("component", func(ctx context.Context) error { <-ctx.Done(); return nil }))
		go func() { n.done <- agent.Run(ctx) }()
		synctest.Wait()
		e.start(ctx, agent)
		generation := func(g int) []*v1.Pod {
			desired := []*v1.Pod{e.bystander}
			for i := range pods {
				name := fmt.Sprintf("web-%d", i)
				desired = append(desired,
					testpod.With(makePod(name), testpod.UID(types.UID(fmt.Sprintf("%s-%d", name, g))),
						testpod.Volumes(v1.Volume{Name: "own"}), testpod.Grace(1)))
			}
			return desired
		}
		for g := range generations {
			source.Set(generation(g)...)
			n.after(2 * time.Second)
		}
		last := n.after(5 * time.Second)
		for name, pod := range last {
			if pod.UID != e.bystander.UID && name != "web-1" { // which exits again and again
				assert.Equal(t, v1.PodRunning, pod.Status.Phase, name)
			}
		}
		e.end()
		source.Set(generation(generations)...) // refused, for Drain is called
		n.after(5 * time.Second)
		assert.Empty(t, rt.Running(fake.Target{}))
		n.stop(t)
		for _, place := range []string{"History.Record", "Event", "Measure podworkers.Call", "Logger", "Plugin.SetUp",
			"Probe.Check", "StatusSink.Deliver", "StatusSink.PodGone"} {
			assert.NotZero(t, e.visits[place], place)
		}
	})
}
