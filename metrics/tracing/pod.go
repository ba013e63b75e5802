package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The attributes of this package.
const (
	keyReason  = attribute.Key("kubeletkit.reason")
	keyMessage = attribute.Key("kubeletkit.message")
	keyError   = attribute.Key("kubeletkit.error")
	keySource  = attribute.Key("kubeletkit.source")
	keyAttempt = attribute.Key("kubeletkit.sandbox.attempt")
	keyProbe   = attribute.Key("kubeletkit.probe")
)

// pod has the open spans of a pod.
type pod struct {
	tracer trace.Tracer
	root   open
	// prepare and stop are those of the pod; their span is nil unless they are open.
	prepare, stop open
	// called means that the runtime was called for the pod.
	called bool
	// stopping means that the pod is or was being stopped.
	stopping bool
	// failed is why the pod has failed for good.
	failed string
	// withdrawn means that the pod is not desired, so that it is removed after its stop.
	withdrawn  bool
	containers map[string]*container
}

// container has the open spans of a container. It is dropped when it has none.
type container struct {
	run, unready, backoff open
	// stop is why the run is being stopped.
	stop string
}

// open is an open span with its context. Its span is nil if there is none.
type open struct {
	trace.Span
	ctx  context.Context
	from time.Time
}

// close ends the span, if there is one, not before it has begun: clocks differ, and records come late.
func (o *open) close(at time.Time, err string) {
	if o.Span == nil {
		return
	}
	if err != "" {
		o.SetStatus(codes.Error, err)
	}
	if at.Before(o.from) {
		at = o.from
	}
	o.End(trace.WithTimestamp(at))
	*o = open{}
}

// begin begins the span of a pod.
func (t *Tracer) begin(ctx context.Context, e *history.Entry) *pod {
	attrs := []attribute.KeyValue{semconv.K8SPodUID(string(e.Pod.UID)), semconv.K8SPodName(e.Pod.Name),
		semconv.K8SNamespaceName(e.Pod.Namespace)}
	if t.opts.NodeName != "" {
		attrs = append(attrs, semconv.K8SNodeName(t.opts.NodeName))
	}
	p := &pod{tracer: t.tracer, containers: map[string]*container{}}
	ctx, span := t.tracer.Start(ctx, "pod", trace.WithNewRoot(), trace.WithTimestamp(e.Last),
		trace.WithAttributes(attrs...))
	p.root = open{span, ctx, e.Last}
	return p
}

func (p *pod) start(parent *open, name string, at time.Time, attrs ...attribute.KeyValue) open {
	if parent.Span == nil {
		parent = &p.root
	}
	ctx, span := p.tracer.Start(parent.ctx, name, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
	return open{span, ctx, at}
}

// outcome makes the span of an action that has ended.
func (p *pod) outcome(parent *open, name string, e *history.Entry, attrs ...attribute.KeyValue) {
	span := p.start(parent, name, began(e), attrs...)
	span.close(e.Last, e.Error)
}

// began returns when an action has begun.
func began(e *history.Entry) time.Time {
	if e.Stage == runtime.StageDone {
		return e.Last.Add(-max(0, e.Duration))
	}
	return e.Last
}

// event adds an event to the span of the pod.
func (p *pod) event(at time.Time, name string, attrs ...attribute.KeyValue) {
	p.root.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
}

// end ends all spans of the pod.
func (p *pod) end(at time.Time) {
	for name := range p.containers {
		p.endContainer(name, at)
	}
	p.prepare.close(at, "")
	p.stop.close(at, "")
	p.root.close(at, p.failed)
}

// take makes the spans of an entry. It returns true if the pod has ended.
func (p *pod) take(e *history.Entry) (ended bool) {
	if e.Container != "" {
		p.takeContainer(e)
		return false
	}
	switch e.Kind {
	case runtime.KindAdmit:
		p.outcome(&p.root, "pod.admission", e, keySource.String(string(e.Source)))
		if !p.called && p.prepare.Span == nil {
			p.prepare = p.start(&p.root, "pod.prepare", e.Last)
		}
	case runtime.KindRefuse:
		p.failed = e.Reason + ": " + e.Message
		admission := p.start(&p.root, "pod.admission", e.Last, keySource.String(string(e.Source)))
		admission.close(e.Last, p.failed)
		return true
	case runtime.KindSandboxReady:
		p.runtimeCalled(e.Last)
	case runtime.KindCreateSandbox:
		p.runtimeCalled(began(e))
		if e.Stage == runtime.StageDone {
			p.outcome(&p.root, "pod.sandbox", e, keyAttempt.Int(int(e.Attempt)))
		}
	case runtime.KindSync:
		if e.Error != "" {
			p.event(e.Last, "pod.sync.failed", keyError.String(e.Error))
		}
	case runtime.KindFail:
		p.failed = e.Reason + ": " + e.Message
	case runtime.KindStopPod:
		return p.takeStop(e)
	case runtime.KindRemovePod:
		return true
	case runtime.KindWithdraw:
		p.withdrawn = true
		p.note(e)
	case runtime.KindWait, runtime.KindUpdate, runtime.KindRecreate, runtime.KindEvict, runtime.KindOOMKill,
		runtime.KindSandboxDied:
		p.note(e)
	}
	return false
}

// note makes an event of an entry.
func (p *pod) note(e *history.Entry) {
	var attrs []attribute.KeyValue
	for _, a := range []struct {
		key   attribute.Key
		value string
	}{{semconv.K8SContainerNameKey, e.Container}, {keyReason, e.Reason}, {keyMessage, e.Message}, {keyError, e.Error}} {
		if a.value != "" {
			attrs = append(attrs, a.key.String(a.value))
		}
	}
	p.event(e.Last, string(e.Kind), attrs...)
}

// runtimeCalled notes that what the pod needs is there.
func (p *pod) runtimeCalled(at time.Time) {
	p.called = true
	p.prepare.close(at, "")
}

func (p *pod) takeStop(e *history.Entry) (ended bool) {
	p.stopping = true
	if e.Stage == runtime.StageDecided {
		p.prepare.close(e.Last, "")
		if p.stop.Span == nil {
			p.stop = p.start(&p.root, "pod.stop", e.Last)
		}
		p.stop.SetAttributes(keyReason.String(e.Reason))
		switch e.Reason {
		case "NotDesired", "Orphan", "Deleted": // reasons of podworkers
			p.withdrawn = true
		}
		return false
	}
	if p.stop.Span == nil {
		p.stop = p.start(&p.root, "pod.stop", began(e))
	}
	p.stop.close(e.Last, e.Error)
	return !p.withdrawn
}

// takeContainer makes the spans of an entry about a container.
func (p *pod) takeContainer(e *history.Entry) {
	c := p.containers[e.Container]
	if c == nil {
		c = &container{}
		p.containers[e.Container] = c
	}
	name := semconv.K8SContainerName(e.Container)
	switch e.Kind {
	case runtime.KindPullImage:
		p.runtimeCalled(began(e))
		c.backoff.close(e.Last, "")
		if e.Stage == runtime.StageDone {
			p.outcome(&p.root, "image.pull", e, name, semconv.ContainerImageName(e.Message))
		}
	case runtime.KindStartContainer:
		p.runtimeCalled(began(e))
		c.backoff.close(e.Last, "")
		if e.Stage == runtime.StageDone {
			p.outcome(&p.root, "container.start", e, name, semconv.K8SContainerRestartCount(int(e.Attempt)))
		}
	case runtime.KindBackOff:
		if c.backoff.Span == nil {
			c.backoff = p.start(&p.root, "container.backoff", e.Last, name,
				semconv.K8SContainerStatusReasonKey.String(e.Reason))
		}
	case runtime.KindContainerRunning:
		p.runtimeCalled(e.Last)
		p.endRun(c, e.Last, "")
		p.beginRun(c, e, e.Last)
	case runtime.KindContainerExited:
		p.exited(c, e)
	case runtime.KindStopContainer:
		if e.Stage == runtime.StageDecided {
			c.stop = e.Reason
		} else {
			attrs := []attribute.KeyValue{name}
			if c.stop != "" { // otherwise the pod is stopped
				attrs = append(attrs, keyReason.String(c.stop))
			}
			p.outcome(&c.run, "container.stop", e, attrs...)
		}
	case runtime.KindPostStart:
		p.outcome(&c.run, "container.post_start", e, name)
	case runtime.KindPreStop:
		p.outcome(&c.run, "container.pre_stop", e, name)
	case runtime.KindProbe:
		p.probed(c, e)
	case runtime.KindOOMKill, runtime.KindResizeContainer, runtime.KindContainerUnknown:
		p.note(e)
	}
	if c.run.Span == nil && c.backoff.Span == nil {
		delete(p.containers, e.Container)
	}
}

func (p *pod) beginRun(c *container, e *history.Entry, at time.Time) {
	c.stop = ""
	c.run = p.start(&p.root, "container", at, semconv.K8SContainerName(e.Container),
		semconv.K8SContainerRestartCount(int(e.Attempt)))
}

func (p *pod) endRun(c *container, at time.Time, err string) {
	c.unready.close(at, "")
	c.run.close(at, err)
}

// exited ends a run. If its start was not seen, the times are those of the runtime.
func (p *pod) exited(c *container, e *history.Entry) {
	end := e.Last
	if !e.At.IsZero() && e.At.Before(end) {
		end = e.At
	}
	if c.run.Span == nil {
		p.beginRun(c, e, end.Add(-max(0, e.Duration)))
	}
	failure := ""
	if e.Reason == runtime.ReasonGone {
		c.run.SetAttributes(keyReason.String(e.Reason))
	} else {
		c.run.SetAttributes(semconv.ProcessExitCode(int(e.ExitCode)))
		if e.ExitCode != 0 && c.stop == "" && !p.stopping {
			failure = fmt.Sprintf("exited with code %d", e.ExitCode)
		}
	}
	if e.Reason != "" && e.Reason != runtime.ReasonGone {
		c.run.SetAttributes(semconv.K8SContainerStatusReasonKey.String(e.Reason))
	}
	p.endRun(c, end, failure)
}

// probed makes an event of the result of a probe. A readiness probe begins or ends the time in which the container is
// not ready. A result that comes before the container was seen to run is dropped.
func (p *pod) probed(c *container, e *history.Entry) {
	if c.run.Span == nil {
		return
	}
	attrs := []attribute.KeyValue{keyProbe.String(e.Reason)}
	event := "probe.succeeded"
	if e.Error != "" {
		event = "probe.failed"
		attrs = append(attrs, keyError.String(e.Error))
	}
	c.run.AddEvent(event, trace.WithTimestamp(e.Last), trace.WithAttributes(attrs...))
	if e.Reason != "Readiness" {
		return
	}
	name := semconv.K8SContainerName(e.Container)
	switch {
	case e.Error != "" && c.unready.Span == nil:
		c.unready = p.start(&c.run, "container.unready", e.Last, name)
	case e.Error == "" && c.unready.Span == nil: // it was not ready from its start
		c.unready = p.start(&c.run, "container.unready", c.run.from, name)
		c.unready.close(e.Last, "")
	case e.Error == "":
		c.unready.close(e.Last, "")
	}
}

// endContainer ends all spans of a container.
func (p *pod) endContainer(name string, at time.Time) {
	c := p.containers[name]
	c.backoff.close(at, "")
	p.endRun(c, at, "")
	delete(p.containers, name)
}
