package cluster

import (
	"context"

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

// membership is the component by which the node has its agent.
type membership struct{ node *Node }

var (
	_ lifecycle.Joiner            = membership{}
	_ lifecycle.NodeStatusHandler = membership{}
)

// Name implements [lifecycle.Component].
func (membership) Name() string { return "cluster" }

// Join implements [lifecycle.Joiner].
func (m membership) Join(agent lifecycle.Node) error {
	n := m.node
	n.agent, n.pressures = agent, nil
	for _, c := range agent.Components() {
		if p, ok := c.(Pressure); ok {
			n.pressures = append(n.pressures, p)
		}
	}
	if n.config.CSI {
		if err := agent.Add("storage", n.storage.Run); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"node object", n.node.Run}, {"reads of the node object", n.answerRefreshes},
		{"cache of API objects", n.objects.Run},
		{"service account tokens", n.tokens.Run}, {"pod certificates", n.certificates.Run},
		{"services", n.services.Run},
		{"cluster trust bundles", n.bundles.Run}, {"runtime classes", n.classes.Run},
		{"recorder of events", n.events.Run},
	} {
		if err := agent.Add(c.name, c.run); err != nil {
			return err
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
