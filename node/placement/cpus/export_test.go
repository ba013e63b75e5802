package cpus

import (
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// TakeNearForTest takes CPUs as Allocate does.
func TakeNearForTest(m numa.Machine, free cpuset.CPUSet, n int, nodes numa.Nodes,
	opts PolicyOptions) (cpuset.CPUSet, error) {
	return newLayout(m).takeNear(free, n, nodes, opts)
}

// WithoutSync has the manager write its checkpoint by the function.
func (m *Manager) WithoutSync(write func(path string, data []byte) error) { m.held.Write = write }
