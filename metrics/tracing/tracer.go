package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/kubeletkit/kubeletkit/metrics/tracing"

// Options are the settings of a [Tracer]. The zero value is valid.
type Options struct {
	// NodeName is the attribute k8s.node.name. Default: none.
	NodeName string
	// MaxPods is the number of pods that have open spans at a time. Further pods have no spans, which is logged once.
	// Default: 1000.
	MaxPods int
	// Logger receives what no method returns. Default: that of package slog.
	Logger logr.Logger
}

// Tracer makes spans of a history. An agent runs it as a component, see kubeletkit.Agent.Add.
type Tracer struct {
	store  history.Store
	tracer trace.Tracer
	opts   Options
	// since is the time of New.
	since time.Time
	ran   atomic.Bool

	// The rest belongs to the goroutine of Run.

	pods map[types.UID]*pod
	// full is true after a pod had no room.
	full bool
}

// New returns a Tracer of the history, whose spans are made by the provider. It starts nothing.
func New(store history.Store, provider trace.TracerProvider, opts Options) (*Tracer, error) {
	if opts.Logger.GetSink() == nil {
		opts.Logger = logr.FromSlogHandler(slog.Default().Handler())
	}
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("tracing: there is no history.Store"))
	}
	if provider == nil {
		errs = append(errs, errors.New("tracing: there is no TracerProvider"))
	}
	if opts.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("tracing: Options.MaxPods %d is negative", opts.MaxPods))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if opts.MaxPods == 0 {
		opts.MaxPods = 1000
	}
	return &Tracer{
		store: store, tracer: provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), opts: opts,
		since: time.Now().Truncate(time.Microsecond), pods: map[types.UID]*pod{},
	}, nil
}

// Run makes spans until ctx ends, and then ends those that are open. It does not shut the provider down. A second call
// returns an error that wraps [runtime.ErrAlreadyRunning].
func (t *Tracer) Run(ctx context.Context) error {
	if !t.ran.CompareAndSwap(false, true) {
		return fmt.Errorf("tracing: %w", runtime.ErrAlreadyRunning)
	}
	for e := range t.store.Watch(ctx, "") {
		t.take(ctx, &e)
	}
	now := time.Now()
	for uid, p := range t.pods {
		p.event(now, "agent.stopped")
		p.end(now)
		delete(t.pods, uid)
	}
	return nil
}

// take makes the spans of one entry.
func (t *Tracer) take(ctx context.Context, e *history.Entry) {
	if e.Last.Before(t.since) || !e.At.IsZero() && e.At.Before(t.since) {
		return // before this agent
	}
	p := t.pods[e.Pod.UID]
	if p == nil {
		if !begins(&e.Record) || !t.room(e.Last) {
			return
		}
		p = t.begin(ctx, e)
		t.pods[e.Pod.UID] = p
	}
	if p.take(e) {
		p.end(e.Last)
		delete(t.pods, e.Pod.UID)
	}
}

// begins reports whether a record can be the first one of a pod. Others come after its end.
func begins(r *runtime.Record) bool {
	switch r.Kind {
	case runtime.KindAdmit, runtime.KindRefuse, runtime.KindSandboxReady, runtime.KindContainerRunning,
		runtime.KindCreateSandbox, runtime.KindPullImage, runtime.KindStartContainer, runtime.KindWait:
		return true
	case runtime.KindStopPod:
		return r.Stage == runtime.StageDecided
	}
	return false
}

// room reports whether another pod can have spans. If there is none, it ends those of pods that the history does not
// have any more, or as gone.
func (t *Tracer) room(now time.Time) bool {
	if len(t.pods) < t.opts.MaxPods {
		return true
	}
	live := map[types.UID]bool{}
	for _, p := range t.store.Pods() {
		live[p.UID] = p.GoneAt.IsZero()
	}
	for uid, p := range t.pods {
		if !live[uid] {
			p.end(now)
			delete(t.pods, uid)
		}
	}
	if len(t.pods) < t.opts.MaxPods {
		return true
	}
	if !t.full {
		t.full = true
		t.opts.Logger.Info("More pods than have room: further ones have no spans", "maxPods", t.opts.MaxPods)
	}
	return false
}
