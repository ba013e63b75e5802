package cgroup

import (
	"time"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// measuredTree measures the changes of a tree.
type measuredTree struct {
	tree
	node lifecycle.Node
}

func (t measuredTree) make(driver Driver, cgroup string, r Resources) error {
	defer measure(t.node, runtime.CgroupCreate, time.Now())
	return t.tree.make(driver, cgroup, r)
}

func (t measuredTree) set(driver Driver, cgroup string, r Resources) error {
	defer measure(t.node, runtime.CgroupUpdate, time.Now())
	return t.tree.set(driver, cgroup, r)
}

func measure(node lifecycle.Node, operation string, began time.Time) {
	node.Measure(runtime.CgroupChange{Operation: operation, Took: time.Since(began)})
}
