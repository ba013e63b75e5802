package podconfig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// MapPods returns a source that delivers the pods of another source as f returns them, and
// drops a pod for which f returns nil. Snapshots, deltas, rejections and restored pods pass
// through it. Restored pods that the source keeps are not mapped again.
//
// f is called for each new or changed pod, one call at a time. It must not change the pod,
// but may return a changed copy of the same UID, and must not wait for the source or for
// [Mapped.Refresh]. Pods that are the same by pointer are not mapped again, except by
// Refresh. What f returns is not validated. If f panics, or returns a pod with another UID, that pod is rejected, and
// what f has returned for it last stays.
func MapPods(source Source, f func(pod *v1.Pod) *v1.Pod) *Mapped {
	return &Mapped{source: source, f: f, refresh: flow.NewSignal(), pods: map[types.UID]mappedPod{},
		names: map[fullName]types.UID{}}
}

// Mapped is the [Source] that [MapPods] returns.
type Mapped struct {
	source Source
	f      func(pod *v1.Pod) *v1.Pod
	// refresh holds one token when Refresh was called. Further tokens are dropped: one pass
	// over the pods is for all calls.
	refresh flow.Signal

	// mu orders the deliveries. It is held during f and the calls of the sink, neither of
	// which waits for a delivery or for Refresh.
	mu sync.Mutex
	// pods are those that the source offers. They outlive a run, as they do in a Mux. names
	// has the UID of each of their full names.
	pods  map[types.UID]mappedPod
	names map[fullName]types.UID
}

// mappedPod is a pod of the source, and what f has returned for it last. A restored pod is
// not mapped: both are the same.
type mappedPod struct {
	in, out  *v1.Pod
	restored bool
}

// Name implements [Source]: it is the name of the other source.
func (m *Mapped) Name() string { return m.source.Name() }

// RestoreAfter implements [RestoreDelayer]: it is that of the other source.
func (m *Mapped) RestoreAfter() <-chan struct{} { return restoreAfter(m.source) }

// Refresh has f called again for all pods, for an f that does not depend on the pod alone.
// It does not wait for that.
func (m *Mapped) Refresh() {
	m.refresh.Notify()
}

// Run implements [Source]. If the other source is complete, Run goes on until ctx ends, for
// calls of Refresh.
func (m *Mapped) Run(ctx context.Context, sink Sink) error {
	running, cancel := context.WithCancel(ctx)
	s := &mappedSink{Sink: sink, source: m, restored: map[*v1.Pod]bool{}}
	for _, pod := range sink.Restored() {
		s.restored[pod] = true
	}
	var (
		refresher sync.WaitGroup
		failure   error
	)
	refresher.Go(func() {
		failure = runtime.Recover(func() error { s.refresh(running); return nil })
		if failure != nil {
			cancel()
		}
	})
	join := func() { cancel(); refresher.Wait() }
	defer join() // also after a panic of the source
	err := m.source.Run(running, s)
	if err == nil && s.delivered() {
		<-running.Done()
	}
	join()
	return cmp.Or(failure, err)
}

// mappedSink is the [Sink] of one run of the other source.
type mappedSink struct {
	Sink
	source   *Mapped
	restored map[*v1.Pod]bool
	seen     bool // Set was called; guarded by source.mu
}

func (s *mappedSink) delivered() bool {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	return s.seen
}

// Set implements [Sink].
func (s *mappedSink) Set(pods []*v1.Pod) {
	m := s.source
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]mappedPod, 0, len(pods))
	for _, pod := range pods {
		if pod != nil {
			list = append(list, s.mapped(pod))
		}
	}
	clear(m.pods)
	clear(m.names)
	out := make([]*v1.Pod, 0, len(list))
	for _, p := range list {
		if _, again := m.pods[p.in.UID]; !again {
			m.put(p)
		}
		if p.out != nil {
			out = append(out, p.out)
		}
	}
	s.seen = true
	s.Sink.Set(out)
}

// Apply implements [Sink].
func (s *mappedSink) Apply(d Delta) {
	m := s.source
	m.mu.Lock()
	defer m.mu.Unlock()
	var out Delta
	last := make(map[types.UID]*v1.Pod, len(d.Update))
	for _, pod := range d.Update {
		if pod != nil {
			last[pod.UID] = pod
		}
	}
	remove := func(uid types.UID) {
		m.drop(uid)
		out.Remove = append(out.Remove, uid)
	}
	for _, uid := range d.Remove {
		if last[uid] == nil {
			remove(uid)
		}
	}
	for _, pod := range d.Update {
		if pod == nil || last[pod.UID] != pod {
			continue
		}
		// The pod takes its name from another one. It may itself be dropped.
		if uid, taken := m.names[fullNameOf(pod)]; taken && uid != pod.UID && !renamed(last[uid], pod) {
			remove(uid)
		}
		p := s.mapped(pod)
		m.put(p)
		out.add(pod.UID, p.out)
	}
	s.Sink.Apply(out)
}

// put remembers a pod. mu is held.
func (m *Mapped) put(p mappedPod) {
	m.drop(p.in.UID)
	m.pods[p.in.UID], m.names[fullNameOf(p.in)] = p, p.in.UID
}

// drop forgets a pod. mu is held.
func (m *Mapped) drop(uid types.UID) {
	if p, known := m.pods[uid]; known {
		if name := fullNameOf(p.in); m.names[name] == uid {
			delete(m.names, name)
		}
		delete(m.pods, uid)
	}
}

// add adds the mapped pod of the UID, which is nil if it was dropped.
func (d *Delta) add(uid types.UID, pod *v1.Pod) {
	if pod == nil {
		d.Remove = append(d.Remove, uid)
	} else {
		d.Update = append(d.Update, pod)
	}
}

// mapped returns the pod with what f returns for it. source.mu is held.
func (s *mappedSink) mapped(pod *v1.Pod) mappedPod {
	if s.restored[pod] {
		return mappedPod{pod, pod, true}
	}
	p := s.source.pods[pod.UID]
	if p.in == pod {
		return p
	}
	return mappedPod{in: pod, out: s.call(pod, p.out)}
}

// call returns what f returns for the pod. If f panics, or returns a pod with another UID, the pod is rejected, and
// before stays, which f has returned for it last. source.mu is held.
func (s *mappedSink) call(pod, before *v1.Pod) *v1.Pod {
	out := before
	err := runtime.Recover(func() error {
		mapped := s.source.f(pod)
		if mapped != nil && mapped.UID != pod.UID {
			return fmt.Errorf("the function of MapPods returned a pod with the UID %q", mapped.UID)
		}
		out = mapped
		return nil
	})
	if err != nil {
		s.Reject(runtime.RefOf(pod), fmt.Errorf("mapping it: %w", err))
	}
	return out
}

// refresh maps all pods again for each token of Refresh, until ctx ends.
func (s *mappedSink) refresh(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.source.refresh:
			s.mapAgain()
		}
	}
}

func (s *mappedSink) mapAgain() {
	m := s.source
	m.mu.Lock()
	defer m.mu.Unlock()
	var d Delta
	for uid, p := range m.pods {
		if p.restored {
			continue
		}
		before := p.out
		if p.out = s.call(p.in, before); p.out != before {
			m.pods[uid] = p
			d.add(uid, p.out)
		}
	}
	if len(d.Update)+len(d.Remove) > 0 {
		slices.SortFunc(d.Update, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
		s.Sink.Apply(d)
	}
}
