package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// maxSets is the number of sets of nodes of one resource in a message, and maxResources that of resources.
const (
	maxSets      = 4
	maxResources = 8
)

// conflict returns why the hints of a container, or of the pod if its name is "", have no nodes that the policy
// accepts: the sets of nodes of each resource that has hints. If resources cannot be served at all, it returns these
// only. It is a pure function.
func conflict(container string, providers []map[string][]numa.Hint) string {
	var prefer, lack []string
	for _, hints := range providers {
		for _, name := range slices.Sorted(maps.Keys(hints)) {
			switch list := hints[name]; {
			case list == nil: // it has no preference
			case len(list) == 0:
				lack = append(lack, name+" on no NUMA node")
			default:
				prefer = append(prefer, name+" "+sets(list))
			}
		}
	}
	reasons := prefer
	if len(prefer)+len(lack) == 0 { // a policy of one's own
		return ""
	}
	if len(lack) > 0 {
		reasons = lack
	}
	if more := len(reasons) - maxResources; more > 0 {
		reasons = append(reasons[:maxResources], fmt.Sprintf("and %d more", more))
	}
	whose := "the pod"
	if container != "" {
		whose = fmt.Sprintf("container %q", container)
	}
	return fmt.Sprintf("%s can have %s", whose, strings.Join(reasons, "; "))
}

// sets describes the preferred sets of nodes of one resource, or the smallest ones if none is preferred.
func sets(hints []numa.Hint) string {
	hints = slices.Clone(hints)
	preferred := slices.ContainsFunc(hints, func(h numa.Hint) bool { return h.Preferred })
	hints = slices.DeleteFunc(hints, func(h numa.Hint) bool { return h.Preferred != preferred })
	slices.SortFunc(hints, func(a, b numa.Hint) int { return a.Nodes.Compare(b.Nodes) })
	if smallest := hints[0].Nodes.Len(); !preferred {
		hints = slices.DeleteFunc(hints, func(h numa.Hint) bool { return h.Nodes.Len() > smallest })
	}
	if hints[0].Nodes == 0 {
		return "anywhere"
	}
	nodes, names := "NUMA node ", []string(nil)
	for i, h := range hints {
		if h.Nodes.Len() > 1 {
			nodes = "NUMA nodes "
		}
		if i == maxSets {
			names = append(names, "…")
			break
		}
		names = append(names, h.Nodes.String())
	}
	text := "on " + nodes + strings.Join(names, " or ")
	if !preferred {
		text += ", more than it needs on an idle machine"
	}
	return text
}
