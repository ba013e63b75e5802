// Package fake has a [prober.Manager] whose results are set by a test.
//
//	probes := fake.New()
//	go probes.Run(ctx)
//	probes.Set(runtime.ProbeResult{Pod: web, Container: "main", ContainerID: id, Kind: runtime.LivenessProbe, Healthy: false})
package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

type key struct {
	id   runtime.ContainerID
	kind runtime.ProbeKind
}

// Prober is a [prober.Manager] without probes. Until a result is set, an
// instance has not started, is not ready and is not unhealthy. It is safe for
// concurrent use.
type Prober struct {
	out chan runtime.ProbeResult
	// wake holds a token if there is something new for Run.
	wake chan struct{}
	cond cond.Cond

	mu      sync.Mutex
	started bool
	results map[key]runtime.ProbeResult
	// unsent has the keys of the results that the reader has not received, in order.
	unsent []key
	pods   map[types.UID]*v1.Pod
	// stopped has the pods of which only readiness is probed.
	stopped map[types.UID]bool
}

var _ prober.Manager = (*Prober)(nil)

// New returns a prober without results.
func New() *Prober {
	return &Prober{
		out: make(chan runtime.ProbeResult), wake: make(chan struct{}, 1),
		results: map[key]runtime.ProbeResult{}, pods: map[types.UID]*v1.Pod{}, stopped: map[types.UID]bool{},
	}
}

// Set sets the result of an instance and kind, and has it sent. It replaces the one
// before if that was not received yet.
func (p *Prober) Set(r runtime.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key{r.ContainerID, r.Kind}
	p.results[k] = r
	if !slices.Contains(p.unsent, k) {
		p.unsent = append(p.unsent, k)
	}
	select {
	case p.wake <- struct{}{}:
	default: // there is a token already
	}
	p.cond.Changed()
}

// Results implements [prober.Manager].
func (p *Prober) Results() <-chan runtime.ProbeResult { return p.out }

// Run sends results until ctx ends and then returns nil. A second call returns an
// error that wraps [runtime.ErrAlreadyRunning].
func (p *Prober) Run(ctx context.Context) error {
	p.mu.Lock()
	second := p.started
	p.started = true
	p.mu.Unlock()
	if second {
		return fmt.Errorf("fake prober: %w", runtime.ErrAlreadyRunning)
	}
	for {
		out, next := p.next()
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case out <- next:
			p.sent(next)
		}
	}
}

func (p *Prober) next() (chan<- runtime.ProbeResult, runtime.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unsent) == 0 {
		return nil, runtime.ProbeResult{}
	}
	return p.out, p.results[p.unsent[0]]
}

func (p *Prober) sent(r runtime.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.results[key{r.ContainerID, r.Kind}] == r { // otherwise there is a newer one
		p.unsent = p.unsent[1:]
	}
	p.cond.Changed()
}

// UntilTaken returns when the reader has received every result.
func (p *Prober) UntilTaken(ctx context.Context) error {
	return p.cond.Until(ctx, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.unsent) == 0
	}, nil)
}

func (p *Prober) result(id runtime.ContainerID, kind runtime.ProbeKind) (healthy, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.results[key{id, kind}]
	return r.Healthy, known
}

// Started implements [runtime.ProbeResults].
func (p *Prober) Started(id runtime.ContainerID) bool {
	healthy, _ := p.result(id, runtime.StartupProbe)
	return healthy
}

// Ready implements [runtime.ProbeResults].
func (p *Prober) Ready(id runtime.ContainerID) bool {
	healthy, _ := p.result(id, runtime.ReadinessProbe)
	return healthy
}

// HasProbe implements [runtime.ProbeResults]: the probes are those in the spec.
func (p *Prober) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}

// Unhealthy implements [runtime.ProbeResults].
func (p *Prober) Unhealthy(id runtime.ContainerID) (kind runtime.ProbeKind, yes bool) {
	for _, kind := range []runtime.ProbeKind{runtime.LivenessProbe, runtime.StartupProbe} {
		if healthy, known := p.result(id, kind); known && !healthy {
			return kind, true
		}
	}
	return "", false
}

// AddPod implements [prober.Manager]; see [Prober.Probed].
func (p *Prober) AddPod(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.UID] = pod
	p.cond.Changed()
}

// StopLivenessAndStartup implements [prober.Manager]; see [Prober.Probed].
func (p *Prober) StopLivenessAndStartup(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped[pod.UID] = true
	p.cond.Changed()
}

// RemovePod implements [prober.Manager]. It drops the results of the pod.
func (p *Prober) RemovePod(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(pod.UID)
}

func (p *Prober) remove(uid types.UID) {
	delete(p.pods, uid)
	delete(p.stopped, uid)
	maps.DeleteFunc(p.results, func(_ key, r runtime.ProbeResult) bool { return r.Pod.UID == uid })
	p.unsent = slices.DeleteFunc(p.unsent, func(k key) bool { _, known := p.results[k]; return !known })
	p.cond.Changed()
}

// Cleanup implements [prober.Manager].
func (p *Prober) Cleanup(keep func(uid types.UID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.pods {
		if !keep(uid) {
			p.remove(uid)
		}
	}
}

// Notify does nothing, since there are no probes.
func (p *Prober) Notify(types.UID) {}

// Probed reports whether the pod was added and not removed, and whether its liveness
// is probed, too.
func (p *Prober) Probed(uid types.UID) (probed, liveness bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, probed = p.pods[uid]
	return probed, probed && !p.stopped[uid]
}

// UntilProbed returns when the pod was added.
func (p *Prober) UntilProbed(ctx context.Context, uid types.UID) error {
	return p.cond.Until(ctx, func() bool { probed, _ := p.Probed(uid); return probed }, nil)
}
