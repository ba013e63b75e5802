// Package fake is a prober whose verdicts come from a test.
//
//	probes := fake.New()
//	go probes.Run(ctx)
//	probes.Set(runtime.ProbeResult{Pod: web, Container: "main", ContainerID: id, Kind: runtime.LivenessProbe, Healthy: false})
//
// It can stand wherever a [prober.Manager] does: as the [runtime.ProbeResults] of a
// sync, as the prober of a pod syncer, and as the source of results for a loop.
package fake

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

type key struct {
	id   runtime.ContainerID
	kind runtime.ProbeKind
}

// Prober has the verdicts that it was told. Of an instance that it was told
// nothing about, probes have neither succeeded nor failed. It is safe for
// concurrent use.
type Prober struct {
	out chan runtime.ProbeResult
	// wake has room for one: it is full when Run is to look.
	wake chan struct{}
	cond cond.Cond

	mu       sync.Mutex
	started  bool
	verdicts map[key]runtime.ProbeResult
	// unsent are the keys of those that the reader was not given, in order.
	unsent []key
	pods   map[types.UID]*v1.Pod
	// stopped are pods of which only readiness is probed any more.
	stopped map[types.UID]bool
}

var _ runtime.ProbeResults = (*Prober)(nil)

// New returns a prober without verdicts.
func New() *Prober {
	return &Prober{
		out: make(chan runtime.ProbeResult), wake: make(chan struct{}, 1),
		verdicts: map[key]runtime.ProbeResult{}, pods: map[types.UID]*v1.Pod{}, stopped: map[types.UID]bool{},
	}
}

// Set makes a result the verdict on its instance and kind, and has it sent. If the
// last one was not taken yet, this takes its place.
func (p *Prober) Set(r runtime.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key{r.ContainerID, r.Kind}
	p.verdicts[k] = r
	if !slices.Contains(p.unsent, k) {
		p.unsent = append(p.unsent, k)
	}
	select {
	case p.wake <- struct{}{}:
	default: // it is to look already
	}
	p.cond.Changed()
}

// Results is where verdicts are sent, as long as Run runs. The channel is never
// closed.
func (p *Prober) Results() <-chan runtime.ProbeResult { return p.out }

// Run sends results until ctx ends and then returns nil. A second call returns
// [runtime.ErrAlreadyRunning].
func (p *Prober) Run(ctx context.Context) error {
	p.mu.Lock()
	second := p.started
	p.started = true
	p.mu.Unlock()
	if second {
		return runtime.ErrAlreadyRunning
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
	return p.out, p.verdicts[p.unsent[0]]
}

func (p *Prober) sent(r runtime.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verdicts[key{r.ContainerID, r.Kind}] == r { // else there is a newer one
		p.unsent = p.unsent[1:]
	}
	p.cond.Changed()
}

// UntilTaken returns when every result was taken by the reader.
func (p *Prober) UntilTaken(ctx context.Context) error {
	return p.cond.Until(ctx, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.unsent) == 0
	}, nil)
}

func (p *Prober) verdict(id runtime.ContainerID, kind runtime.ProbeKind) (healthy, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.verdicts[key{id, kind}]
	return r.Healthy, known
}

// Started implements [runtime.ProbeResults].
func (p *Prober) Started(id runtime.ContainerID) bool {
	healthy, _ := p.verdict(id, runtime.StartupProbe)
	return healthy
}

// Ready implements [runtime.ProbeResults].
func (p *Prober) Ready(id runtime.ContainerID) bool {
	healthy, _ := p.verdict(id, runtime.ReadinessProbe)
	return healthy
}

// HasProbe implements [runtime.ProbeResults]: the probes are those of the spec.
func (p *Prober) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}

// Unhealthy implements [runtime.ProbeResults].
func (p *Prober) Unhealthy(id runtime.ContainerID) (kind runtime.ProbeKind, yes bool) {
	for _, kind := range []runtime.ProbeKind{runtime.LivenessProbe, runtime.StartupProbe} {
		if healthy, known := p.verdict(id, kind); known && !healthy {
			return kind, true
		}
	}
	return "", false
}

// AddPod takes note that the pod is to be probed.
func (p *Prober) AddPod(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.UID] = pod
	p.cond.Changed()
}

// StopLivenessAndStartup takes note that only the pod's readiness counts now.
func (p *Prober) StopLivenessAndStartup(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped[pod.UID] = true
	p.cond.Changed()
}

// RemovePod takes note that the pod is not to be probed any more, and drops its
// verdicts.
func (p *Prober) RemovePod(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(pod.UID)
}

func (p *Prober) remove(uid types.UID) {
	delete(p.pods, uid)
	delete(p.stopped, uid)
	maps.DeleteFunc(p.verdicts, func(_ key, r runtime.ProbeResult) bool { return r.Pod.UID == uid })
	p.unsent = slices.DeleteFunc(p.unsent, func(k key) bool { _, known := p.verdicts[k]; return !known })
	p.cond.Changed()
}

// Cleanup removes the pods that keep returns false for. keep must not call back.
func (p *Prober) Cleanup(keep func(uid types.UID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.pods {
		if !keep(uid) {
			p.remove(uid)
		}
	}
}

// Notify does nothing: verdicts come from the test.
func (p *Prober) Notify(types.UID) {}

// Probed reports whether the pod is to be probed, and whether that goes for its
// liveness too.
func (p *Prober) Probed(uid types.UID) (probed, liveness bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, probed = p.pods[uid]
	return probed, probed && !p.stopped[uid]
}

// UntilProbed returns when the pod is to be probed.
func (p *Prober) UntilProbed(ctx context.Context, uid types.UID) error {
	return p.cond.Until(ctx, func() bool { probed, _ := p.Probed(uid); return probed }, nil)
}
