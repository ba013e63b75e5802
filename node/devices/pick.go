package devices

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// choice is a choice of devices of one resource for one container. All lists are sorted.
type choice struct {
	// count is the number of devices that are requested.
	count int
	// reuse are the devices that earlier init containers of the pod have had. They are taken first.
	reuse []string
	// free are the healthy devices that nobody has.
	free []string
	// near are the nodes of the hint; the empty set if there is none.
	near numa.Nodes
	// nodes returns the nodes of a device.
	nodes func(id string) numa.Nodes
}

// split returns the devices that the container gets in any case, and the others among which there is a choice for the
// rest, the best first. There are not enough if both together are too few. It is kubelet's order: devices to reuse,
// those near to the nodes of the hint, those near to other nodes, those near to none.
func (c choice) split() (fixed, others []string) {
	fixed = slices.Clone(c.reuse[:min(len(c.reuse), c.count)])
	missing := c.count - len(fixed)
	if missing == 0 {
		return fixed, nil
	}
	var aligned, unaligned, none []string
	for _, id := range c.free {
		switch nodes := c.nodes(id); {
		case c.near == 0 || nodes == 0:
			none = append(none, id)
		case nodes&c.near != 0:
			aligned = append(aligned, id)
		default:
			unaligned = append(unaligned, id)
		}
	}
	if missing < len(aligned) {
		return fixed, aligned
	}
	return append(fixed, aligned...), append(unaligned, none...)
}

// question returns what a provider is asked for its preference; ok is false if there is no choice.
func (c choice) question() (q PreferRequest, ok bool) {
	fixed, others := c.split()
	if missing := c.count - len(fixed); missing <= 0 || missing >= len(others) {
		return q, false
	}
	q = PreferRequest{Available: slices.Concat(fixed, others), Required: slices.Clone(fixed), Count: c.count}
	slices.Sort(q.Available)
	slices.Sort(q.Required)
	return q, true
}

// pick returns the devices, sorted, or false if there are too few. Among those of the choice, the preferred ones come
// first.
func (c choice) pick(preferred []string) (ids []string, ok bool) {
	ids, others := c.split()
	if len(ids)+len(others) < c.count {
		return nil, false
	}
	if missing := c.count - len(ids); missing < len(others) && len(preferred) > 0 {
		rank := make(map[string]int, len(preferred))
		for i, id := range preferred {
			if _, again := rank[id]; !again {
				rank[id] = i - len(preferred) // below 0, the rank of the others
			}
		}
		slices.SortStableFunc(others, func(a, b string) int { return rank[a] - rank[b] })
	}
	ids = append(ids, others[:c.count-len(ids)]...)
	slices.Sort(ids)
	return ids, true
}

// maxHintNodes is the number of memory nodes with devices up to which hints are generated: all sets of them are
// considered. kubelet's topology manager allows 8 nodes by default, too.
const maxHintNodes = 8

// hints returns the sets of nodes that can serve a request of count devices: the smaller sets first, as in kubelet. all
// are the devices of the resource by their nodes, available those that the container can have. With reuse, only sets
// that have all of these devices are returned. It returns nil if no device has nodes.
func hints(count int, all, available map[numa.Nodes]int, reuse []numa.Nodes) []numa.Hint {
	var nodes numa.Nodes
	for n := range all {
		nodes |= n
	}
	if nodes == 0 || nodes.Len() > maxHintNodes {
		return nil
	}
	within := func(devices map[numa.Nodes]int, mask numa.Nodes) (sum int) {
		for n, number := range devices {
			if n&mask != 0 {
				sum += number
			}
		}
		return sum
	}
	could := func(set numa.Nodes) bool { return within(all, set) >= count }
	can := func(set numa.Nodes) bool {
		matching := within(available, set)
		for _, n := range reuse {
			switch {
			case n == 0:
			case n&set == 0:
				return false
			default:
				matching++
			}
		}
		return matching >= count
	}
	out := []numa.Hint{}
	for h := range numa.Hints(nodes, could, can) {
		out = append(out, h)
	}
	return out
}
