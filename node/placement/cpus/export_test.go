package cpus

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// TakeNearForTest takes CPUs as Allocate does.
func TakeNearForTest(m numa.Machine, free cpuset.CPUSet, n int, nodes numa.Nodes,
	opts PolicyOptions) (cpuset.CPUSet, error) {
	return newLayout(m).takeNear(free, n, nodes, opts)
}

// AssignedForTest returns what the container has, also if it shares it with others of its pod.
func (m *Manager) AssignedForTest(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		return p.exclusive[container].Clone()
	}
	return cpuset.New()
}

// WithoutSync has the manager write its checkpoint by the function.
func (m *Manager) WithoutSync(write func(path string, data []byte) error) { m.held.Write = write }
