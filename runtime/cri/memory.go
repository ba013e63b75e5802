package cri

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// memory is the state that a Runtime keeps of pods between calls. None of it is needed
// for correctness: hooks and crashes are also recorded with the containers.
type memory struct {
	mu   sync.Mutex
	pods map[types.UID]*podMemory
	// idle is how long an unused entry is kept: at least twice the longest back-off.
	idle  time.Duration
	swept time.Time
}

// podMemory is guarded by memory.mu.
type podMemory struct {
	used time.Time
	// crashes is the last result of plan.Compute.
	crashes map[string]plan.Crash
	// hooked has the IDs of containers whose preStop hook has ended.
	hooked map[string]bool
	// postStarted has the IDs of containers whose postStart hook was run or is not owed.
	postStarted map[string]bool
	// resized has the resources that containers were given while they ran, by their IDs.
	resized map[string]string
	// resizedPod has the resources of the pod as a whole that its sandbox was told, with the ID of the sandbox.
	resizedPod string
}

// with calls f with the entry of a pod, under the lock.
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
		p = &podMemory{hooked: map[string]bool{}, postStarted: map[string]bool{}, resized: map[string]string{}}
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
