package cluster

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/lifecycle"
)

// Pressure is a component of the agent that knows whether the node is short of something, such as an eviction.Manager.
// The node object has its conditions.
type Pressure interface {
	// UnderPressure reports whether the node has the condition: MemoryPressure, DiskPressure or PIDPressure. It must
	// not block.
	UnderPressure(c v1.NodeConditionType) bool
}

// Shutdown is a component of the agent that knows when the machine shuts down, such as a shutdown.Manager. The node is
// not ready then.
type Shutdown interface {
	// ShuttingDown returns an error while the machine shuts down. It must not block.
	ShuttingDown() error
}

// membership is the component that knows what other components say about the node.
type membership struct{ node *Node }

var (
	_ lifecycle.Joiner            = membership{}
	_ lifecycle.NodeStatusHandler = membership{}
)

// Name implements [lifecycle.Component].
func (membership) Name() string { return "cluster" }

// Join implements [lifecycle.Joiner].
func (m membership) Join(agent lifecycle.Node) error {
	m.node.pressures, m.node.shutdowns = nil, nil
	for _, c := range agent.Components() {
		if p, ok := c.(Pressure); ok {
			m.node.pressures = append(m.node.pressures, p)
		}
		if s, ok := c.(Shutdown); ok {
			m.node.shutdowns = append(m.node.shutdowns, s)
		}
	}
	return nil
}

// NodeStatusChanged implements [lifecycle.NodeStatusHandler].
func (m membership) NodeStatusChanged() { m.node.Update() }

// pressure returns the conditions of what the node may be short of.
func (n *Node) pressure(context.Context) []v1.NodeCondition {
	under := func(c v1.NodeConditionType) (is bool) {
		for _, p := range n.pressures {
			is = is || p.UnderPressure(c)
		}
		return is
	}
	return []v1.NodeCondition{node.MemoryPressure(under(v1.NodeMemoryPressure)),
		node.DiskPressure(under(v1.NodeDiskPressure)), node.PIDPressure(under(v1.NodePIDPressure))}
}

// shuttingDown is the ready check of the shutdowns.
func (n *Node) shuttingDown() error {
	var errs []error
	for _, s := range n.shutdowns {
		errs = append(errs, s.ShuttingDown())
	}
	return errors.Join(errs...)
}
