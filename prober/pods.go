package prober

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// pod is a pod that was added. It is guarded by Prober.mu.
type pod struct {
	spec *v1.Pod
	// stopping means that only readiness is probed.
	stopping bool
	workers  map[workerKey]*worker
}

type workerKey struct {
	container string
	kind      runtime.ProbeKind
}

// probe is a probe of a container, with the handler that makes it.
type probe struct {
	handler   *link
	spec      *v1.Probe
	container *v1.Container
	// startup means that the container has a startup probe.
	startup bool
}

// probesOf returns the probes of the pod. It calls handlers, so the lock must not
// be held.
func (m *Prober) probesOf(spec *v1.Pod) map[workerKey]probe {
	probes := map[workerKey]probe{}
	for _, c := range podspec.Containers(&spec.Spec) {
		if !mayBeProbed(spec, c) {
			continue
		}
		startup := false
		for _, k := range kinds { // the startup probe comes first
			handler, p := m.handlers.find(spec, c, k)
			if handler == nil {
				continue
			}
			startup = startup || k == runtime.StartupProbe
			probes[workerKey{c.Name, k}] = probe{handler, p, c, startup}
		}
	}
	return probes
}

// same reports whether the probes differ in nothing that matters.
func (p probe) same(other probe) bool {
	return p.handler == other.handler && p.startup == other.startup &&
		equality.Semantic.DeepEqual(p.spec, other.spec) &&
		equality.Semantic.DeepEqual(p.container.Ports, other.container.Ports) &&
		equality.Semantic.DeepEqual(p.container.Env, other.container.Env)
}

// AddPod implements [Manager].
func (m *Prober) AddPod(spec *v1.Pod) {
	if m.notify(spec.UID, spec) {
		return
	}
	m.loadOnce.Do(m.load)
	wanted := m.probesOf(spec)
	observed, _ := m.status.Get(spec.UID)

	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[spec.UID]
	if p == nil {
		p = &pod{workers: map[workerKey]*worker{}}
		m.pods[spec.UID] = p
		m.seed(spec)
		m.restore(spec.UID, observed)
	}
	moved := p.spec != nil && podspec.HasHostNetwork(p.spec) != podspec.HasHostNetwork(spec)
	p.spec = spec
	for key, w := range p.workers {
		if now, ok := wanted[key]; ok && !moved && now.same(w.probe) {
			w.pod, w.probe = spec, now
			delete(wanted, key)
		} else {
			p.remove(key)
		}
	}
	for key, probe := range wanted {
		if p.stopping && key.kind != runtime.ReadinessProbe {
			continue
		}
		w := newWorker(m, spec, key, probe)
		p.workers[key] = w
		m.launch(w)
	}
}

// StopLivenessAndStartup implements [Manager].
func (m *Prober) StopLivenessAndStartup(spec *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[spec.UID]
	if p == nil {
		return
	}
	p.stopping = true
	for key := range p.workers {
		if key.kind != runtime.ReadinessProbe {
			p.remove(key)
		}
	}
}

// RemovePod implements [Manager]. Checks under way are interrupted.
func (m *Prober) RemovePod(spec *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removePod(spec.UID)
}

// Cleanup implements [Manager].
func (m *Prober) Cleanup(keep func(uid types.UID) bool) {
	m.mu.Lock()
	uids := slices.AppendSeq(slices.Collect(maps.Keys(m.pods)), maps.Keys(m.kept))
	m.mu.Unlock()
	uids = slices.DeleteFunc(uids, keep)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range uids {
		m.removePod(uid)
		delete(m.kept, uid)
	}
}

func (m *Prober) removePod(uid types.UID) {
	p := m.pods[uid]
	if p == nil {
		return
	}
	for key := range p.workers {
		p.remove(key)
	}
	delete(m.pods, uid)
	for id, s := range m.states {
		if s.uid == uid {
			delete(m.states, id)
		}
	}
}

// remove ends a worker without waiting for it.
func (p *pod) remove(key workerKey) {
	p.workers[key].stop()
	delete(p.workers, key)
}

// Notify implements [Manager].
func (m *Prober) Notify(uid types.UID) { m.notify(uid, nil) }

// notify has the pod's workers look at its status, and reports whether spec is what
// was last added.
func (m *Prober) notify(uid types.UID, spec *v1.Pod) (same bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return false
	}
	p.wake()
	return p.spec == spec
}

// wake has all workers read the status.
func (p *pod) wake() {
	for _, w := range p.workers {
		w.wake.Notify()
	}
}
