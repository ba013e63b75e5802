package kubeletkit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Agent is a node agent. Its methods are safe for concurrent use.
type Agent struct {
	opts  Options
	log   logr.Logger
	parts Parts
	loop  *syncloop.Loop
	join  []lifecycle.Component // those of the options, built
	// observers are the hooks of the options; Run waits for what they are to receive.
	observers []flow.Waiter

	mu      sync.Mutex
	started time.Time // when Run was called; zero before
	added   []component
	healthy []check
	ready   []check
}

// check is a health or ready check that was added.
type check struct {
	name string
	run  func() error
}

// component runs as long as the agent.
type component struct {
	name string
	run  func(ctx context.Context) error
}

// Parts returns the parts of the agent.
func (a *Agent) Parts() Parts { return a.parts }

// Add has run called with the agent's context when the agent runs, and waited for when
// it stops, so that further components live and end with the agent. If run returns an
// error while the agent runs, the agent stops and Run returns it; nil is no error. A panic
// of run counts as an error. Add fails if run is nil, and once Run was called.
//
// An HTTP server, for example, is such a component:
//
//	err := agent.Add("HTTP server", func(ctx context.Context) error {
//		return server.Serve(ctx, listener, server.Handler(agent, server.Options{}))
//	})
func (a *Agent) Add(name string, run func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started.IsZero() {
		return fmt.Errorf("kubeletkit: adding component %q: %w", name, runtime.ErrAlreadyRunning)
	}
	if run == nil {
		return fmt.Errorf("kubeletkit: adding component %q: its function is nil", name)
	}
	a.added = append(a.added, component{name, run})
	return nil
}

// AddHealthCheck adds a check to [Agent.Healthy]. The check must return soon and be safe
// for concurrent use.
func (a *Agent) AddHealthCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healthy = append(a.healthy, check{name, run})
}

// AddReadyCheck adds a check to [Agent.Ready]. The check must return soon and be safe for
// concurrent use.
func (a *Agent) AddReadyCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, check{name, run})
}

// start reports whether this is the first call, and returns the added components.
func (a *Agent) start() ([]component, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.started.IsZero()
	if first {
		a.started = time.Now()
	}
	return a.added, first
}

func (a *Agent) named(part string) logr.Logger { return a.log.WithName(part) }

// Parts are the parts of an agent, in the order in which [New] builds them: each is
// given those above it.
type Parts struct {
	// Runtime and Host are those of the options; a Host that was nil there was detected.
	Runtime runtime.Runtime
	Host    *runtime.Host
	// HostIPs returns the addresses of the node as they are now. Host.IPs are those that were
	// known when the agent was made. It is not nil.
	HostIPs func() []string
	// PodsDir is the directory that has a directory for each pod.
	PodsDir string
	// Event merges repeats and passes events on to the hooks of the options. It is not nil. It does not wait for the
	// hooks, so that parts have it as an Event that never blocks, such as with prober.Options.NonBlocking.
	Event runtime.EventFunc
	// NetworkReady returns an error while only pods with the host's network can start.
	NetworkReady func() error
	// MayRun reports whether containers of the pod may run, as far as its worker is
	// concerned. It must not be called by New.
	MayRun func(uid types.UID) bool
	// Gone reports whether what is left of the pod can be removed: it is not desired and has no
	// worker, or it was deleted in the API or evicted, and has ended. It must not be called by New.
	Gone func(uid types.UID) bool

	// Objects has the secrets and config maps that pods refer to; nil: there are none.
	Objects objects.Source
	// Checkpoint keeps pods on disk, after [Agent.Drain] also those that are refused only
	// because of it; nil: nothing is kept.
	Checkpoint checkpoint.Store
	// History keeps what happened to each pod and why. Record has its method of that name called, and does not wait for
	// it; it is nil if History is [history.None].
	History history.Store
	Record  runtime.RecordFunc
	// Inspector reads the status of a pod from the runtime, with what components add that are a
	// [lifecycle.InspectionWrapper]. Cache reads by it.
	Inspector runtime.Inspector
	// CacheOptions are the options of the default Cache, and PLEGOptions those of the default PLEG. A Cache or a PLEG
	// that is made in its place takes them from here: Record, Metrics and Logger are set in them. A [pleg.Generic]
	// takes PLEGOptions.Options.
	CacheOptions runtime.CacheOptions
	PLEGOptions  pleg.EventedOptions
	// Cache has the last known status of each pod.
	Cache runtime.StatusCache
	// PLEG reports what changed in the runtime, and reads changed pods into Cache.
	PLEG pleg.Generator
	// PodConfig merges the sources into one stream of changes.
	PodConfig podconfig.Config
	// PodManager has the desired pods.
	PodManager podmanager.Manager
	// StatusSink is that of the options, or nil. With a checkpoint it records which ends of
	// pods are delivered. A Status of one's own delivers to it, with PodGone for the end of
	// each pod.
	StatusSink status.Sink
	// Status keeps the API status of each pod and delivers it to StatusSink.
	Status status.Manager
	// Prober runs the probes of containers.
	Prober prober.Manager
	// Volumes sets up and takes down the volumes of pods.
	Volumes volume.Manager
	// Images pulls the images of containers and image volumes.
	Images images.Manager
	// Steps are the components that join the lives of pods: those of the agent, and those of the options.
	Steps *lifecycle.Steps
	// PodSyncer does the work on one pod that the workers decide on.
	PodSyncer podworkers.Syncer
	// WorkersOptions are the options of the default PodWorkers. PodWorkers that are made in
	// their place take OnBegin, OnEnd and OnFinished from here: they defer inspections of a
	// pod that is being changed, and bring housekeeping forward when pods end.
	WorkersOptions podworkers.Options
	// PodWorkers drive each pod through its life. They start no pod after [Agent.Drain].
	PodWorkers podworkers.Workers
	// GC removes dead containers, sandboxes and logs.
	GC gc.Collector
	// ImageGC removes images; nil: there is none, since the runtime is no
	// [runtime.ImageService].
	ImageGC gc.ImageCollector
	// Admission decides which new pods may run: none after [Agent.Drain].
	Admission lifecycle.Admitter
	// SyncHandler handles the inputs of the loop.
	SyncHandler syncloop.Handler
}

// WithAgent returns a component for [Options].Join that [New] builds with the function, in its place of the list. It is
// for components that need the parts of the agent, such as [Parts].Event and [Parts].Record, or the agent itself, such
// as [Agent.EndPods].
//
// When New calls the function, [Agent.Parts] has those parts that are listed above Inspector; the others are there when
// the agent runs. The function may call [Agent.Parts], [Agent.Add], [Agent.AddHealthCheck] and [Agent.AddReadyCheck],
// and may keep the agent. It starts nothing. Its error, or a component that is nil, fails New.
func WithAgent(build func(agent *Agent) (lifecycle.Component, error)) lifecycle.Component {
	return withAgent{build}
}

// withAgent is replaced by New. It joins no step, so that what does not know it refuses it.
type withAgent struct {
	build func(agent *Agent) (lifecycle.Component, error)
}

// Name implements [lifecycle.Component].
func (withAgent) Name() string {
	return "a component of kubeletkit.WithAgent, which only kubeletkit.New builds"
}

// logEvents returns an EventFunc that logs each event under its message: warnings at level 0, others and those that are
// logged already at level 2.
func logEvents(log logr.Logger) runtime.EventFunc {
	return func(e runtime.Event) {
		l := log
		if e.Logged || e.Type != v1.EventTypeWarning {
			l = log.V(2)
		}
		if !l.Enabled() {
			return
		}
		values := []any{"reason", e.Reason}
		if e.Pod.UID != "" { // else it is about the node
			values = append(values, "pod", e.Pod)
		}
		if e.FieldPath != "" {
			values = append(values, "path", e.FieldPath)
		}
		if e.Count > 1 {
			values = append(values, "count", e.Count)
		}
		l.Info(e.Message, values...)
	}
}
