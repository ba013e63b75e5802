package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// Ordered is a component that has to come before or after others.
type Ordered interface {
	Component
	// Order returns the components that this one comes before and after. It does not change.
	Order() Order
}

// Order has names of components. A name of no component has no effect by itself, so that components can name others
// that an agent may not have. What comes before the name still comes before what comes after it: whether an order can
// be kept does not depend on which of the components are there.
//
//	// A pod without a licence is refused before it is given CPUs, memory or devices.
//	func (*licences) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"topology"}} }
//
// The name "topology" is that of the manager that has CPUs, memory and devices given to new pods. An agent with devices
// and without the manager has the same order, because the devices come after it.
type Order struct {
	// Before are the components that this one comes before: its Admit, Prepare, edits and Running are called before
	// theirs, and its Refused, Stopped, Ended and Gone after theirs.
	Before []string
	// After are the components that this one comes after.
	After []string
}

// Sort returns the components in the order that they declare, see [Ordered]. A component that has to come before
// another one moves forward, to directly before it; all others stay in the order of the list. Components that are
// sorted stay as they are. The error names the components of a cycle, and what they declare.
func Sort(components ...Component) ([]Component, error) {
	nodes := make([]ordered, len(components)) // those that are only named follow
	byName := map[string][]int{}              // two of one name are an error of New
	for i, c := range components {
		if c != nil {
			nodes[i].name = c.Name()
			byName[nodes[i].name] = append(byName[nodes[i].name], i)
		}
	}
	find := func(name string) []int {
		if len(byName[name]) == 0 {
			byName[name] = []int{len(nodes)}
			nodes = append(nodes, ordered{name: name})
		}
		return byName[name]
	}
	for i, c := range components {
		o, ok := c.(Ordered)
		if !ok {
			continue
		}
		order := o.Order()
		for _, name := range order.Before {
			for _, j := range find(name) {
				nodes[i].before = append(nodes[i].before, declared{j, fmt.Sprintf("Before of %q", nodes[i].name)})
			}
		}
		for _, name := range order.After {
			for _, j := range find(name) {
				nodes[j].before = append(nodes[j].before, declared{i, fmt.Sprintf("After of %q", nodes[i].name)})
			}
		}
	}
	// From the end, so that components move forward only: the last one that is before none of those that are left.
	sorted := make([]Component, 0, len(components))
	for left := len(nodes); left > 0; left-- {
		last := len(nodes) - 1
		for last >= 0 && (nodes[last].placed || nodes[last].next(nodes) != nil) {
			last--
		}
		if last < 0 {
			return components, cycle(nodes)
		}
		if nodes[last].placed = true; last < len(components) {
			sorted = append(sorted, components[last])
		}
	}
	slices.Reverse(sorted)
	return sorted, nil
}

// ordered is a component, or a name of none, while it is sorted.
type ordered struct {
	name   string
	before []declared
	placed bool
}

// declared is the index of a component that comes later, and where that is declared.
type declared struct {
	later int
	where string
}

// next returns one of those that come later and are not placed yet; nil if there is none.
func (o *ordered) next(nodes []ordered) *declared {
	for i := range o.before {
		if d := &o.before[i]; !nodes[d.later].placed {
			return d
		}
	}
	return nil
}

// cycle returns the error of nodes of which none can be placed: each is before another one.
func cycle(nodes []ordered) error {
	at := slices.IndexFunc(nodes, func(o ordered) bool { return !o.placed })
	seen := map[int]int{} // the position in path
	var path []string
	for {
		if begin, ok := seen[at]; ok {
			return fmt.Errorf("lifecycle: components declare an order that is a cycle: %s",
				strings.Join(path[begin:], ", "))
		}
		seen[at] = len(path)
		d := nodes[at].next(nodes)
		path = append(path, fmt.Sprintf("%q comes before %q (%s)", nodes[at].name, nodes[d.later].name, d.where))
		at = d.later
	}
}
