package cri

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// memory is what a Runtime remembers of pods between calls. All of it may be lost
// at any time, as it is when the agent ends: back-offs then begin anew.
type memory struct {
	mu   sync.Mutex
	pods map[types.UID]*podMemory
	// idle is how long a pod that nobody asks for is remembered: at least twice any
	// back-off.
	idle  time.Duration
	swept time.Time
}

// podMemory is guarded by memory.mu.
type podMemory struct {
	used time.Time
	// crashes is what plan.Compute has returned last.
	crashes map[string]plan.Crash
	// pulls has the images whose last pull has failed.
	pulls map[string]pullFailure
	// hooked has the IDs of containers whose preStop hook has been run to its end.
	hooked map[string]bool
	// sandbox is that of the pod's sandboxes that was found ready last, as it was then.
	sandbox *runtime.SandboxStatus
}

// readySandbox returns what PodSandboxStatus has said of the sandbox while it was ready, nil
// if that is not known. It must not be changed.
func (m *memory) readySandbox(uid types.UID, id string) *runtime.SandboxStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil && p.sandbox != nil && p.sandbox.ID == id {
		return p.sandbox
	}
	return nil
}

// remember keeps what PodSandboxStatus has said of a sandbox. Of one that is ready and
// has its addresses none of it changes any more but the state, which lists tell.
func (m *memory) remember(uid types.UID, s *runtime.SandboxStatus) {
	if s.State == runtime.SandboxReady && (s.HostNetwork || len(s.IPs) > 0) {
		m.with(uid, func(p *podMemory) { p.sandbox = s })
	}
}

// pullFailure is the last failure to pull an image.
type pullFailure struct {
	// failures in a row.
	failures int
	// until is the end of the back-off.
	until   time.Time
	message string
}

// with calls f with what is remembered of a pod, under the lock.
func (m *memory) with(uid types.UID, f func(*podMemory)) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods == nil {
		m.pods, m.swept = map[types.UID]*podMemory{}, now
	}
	if now.Sub(m.swept) > m.idle {
		for uid, p := range m.pods {
			if now.Sub(p.used) > m.idle {
				delete(m.pods, uid)
			}
		}
		m.swept = now
	}
	p := m.pods[uid]
	if p == nil {
		p = &podMemory{pulls: map[string]pullFailure{}, hooked: map[string]bool{}}
		m.pods[uid] = p
	}
	p.used = now
	f(p)
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
