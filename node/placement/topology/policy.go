package topology

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// The names of the policies. PolicyNone stands for no policy.
const (
	PolicyNone           = "none"
	PolicyBestEffort     = "best-effort"
	PolicyRestricted     = "restricted"
	PolicySingleNUMANode = "single-numa-node"
)

// Policy decides on which nodes a container, or a pod, gets its resources. Merge is a pure function.
type Policy interface {
	// Name is the name of the policy.
	Name() string
	// Merge returns the nodes for the hints of the providers, by the names of the resources, and whether the pod may
	// run with them. See [Provider] for what hints mean. The zero hint means anywhere.
	Merge(hints []map[string][]numa.Hint) (best numa.Hint, admit bool)
}

// The names of the options of policies.
const (
	OptionPreferClosest = "prefer-closest-numa-nodes"
	OptionMaxAllowable  = "max-allowable-numa-nodes"
)

// The numbers of nodes of a machine up to which there are policies. With 16 nodes a resource has up to 65535 hints.
const (
	defaultMaxAllowable = 8
	largestMaxAllowable = 16
)

// PolicyOptions are the options of a policy (kubelet's topologyManagerPolicyOptions). The zero value is the default.
type PolicyOptions struct {
	// PreferClosest prefers nodes with short distances (prefer-closest-numa-nodes, KEP-3545).
	PreferClosest bool
	// MaxAllowable is the largest number of nodes of a machine for which there is a policy (max-allowable-numa-nodes):
	// the number of their sets doubles with each. Default: 8, which is also the minimum. The maximum is 16.
	MaxAllowable int
}

// ParsePolicyOptions returns the options as kubelet has them in its configuration. The error joins all problems.
func ParsePolicyOptions(options map[string]string) (o PolicyOptions, _ error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(options)) {
		var err error
		switch value := options[name]; name {
		case OptionPreferClosest:
			o.PreferClosest, err = strconv.ParseBool(value)
		case OptionMaxAllowable:
			o.MaxAllowable, err = strconv.Atoi(value)
			if err == nil && o.MaxAllowable == 0 {
				o.MaxAllowable = -1 // not the default
			}
		default:
			err = fmt.Errorf("unknown; the options are %s and %s", OptionPreferClosest, OptionMaxAllowable)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("topology: option %q: %w", name, err))
		}
	}
	if err := o.check(); err != nil && errs == nil {
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

func (o PolicyOptions) check() error {
	if n := o.MaxAllowable; n != 0 && (n < defaultMaxAllowable || n > largestMaxAllowable) {
		return fmt.Errorf("topology: option %q: %d must be at least %d and at most %d", OptionMaxAllowable, n,
			defaultMaxAllowable, largestMaxAllowable)
	}
	return nil
}

// NewPolicy returns the policy with the name for the machine; nil for [PolicyNone]. It fails if the name is unknown, or
// the machine has more nodes than the options allow, or the distances between them are required and not known.
func NewPolicy(name string, machine numa.Machine, opts PolicyOptions) (Policy, error) {
	switch name {
	case PolicyNone:
		return nil, nil
	case PolicyBestEffort, PolicyRestricted, PolicySingleNUMANode:
	default:
		return nil, fmt.Errorf("topology: policy %q must be %s, %s, %s or %s", name, PolicyNone, PolicyBestEffort,
			PolicyRestricted, PolicySingleNUMANode)
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	if limit := cmp.Or(opts.MaxAllowable, defaultMaxAllowable); len(machine.Nodes) > limit {
		return nil, fmt.Errorf("topology: policy %s: the machine has %d memory nodes, more than %d; raise the "+
			"option %s, up to %d", name, len(machine.Nodes), limit, OptionMaxAllowable, largestMaxAllowable)
	}
	p := &policy{name: name, order: order{distances: map[int]map[int]int{}}}
	for _, n := range machine.Nodes {
		p.all |= numa.Of(n.ID)
		if !opts.PreferClosest {
			continue
		}
		if len(n.Distances) != len(machine.Nodes) {
			return nil, fmt.Errorf("topology: option %q: the distances of memory node %d are not known",
				OptionPreferClosest, n.ID)
		}
		p.order.distances[n.ID] = map[int]int{}
		for i, d := range n.Distances {
			p.order.distances[n.ID][machine.Nodes[i].ID] = d
		}
	}
	p.order.closest = opts.PreferClosest && name != PolicySingleNUMANode
	return p, nil
}

// policy is one of kubelet's policies.
type policy struct {
	name  string
	all   numa.Nodes
	order order
}

func (p *policy) Name() string { return p.name }

// Merge implements [Policy].
func (p *policy) Merge(providers []map[string][]numa.Hint) (numa.Hint, bool) {
	resources := flatten(providers)
	switch p.name {
	case PolicySingleNUMANode:
		for i := range resources {
			resources[i] = slices.DeleteFunc(slices.Clone(resources[i]),
				func(h numa.Hint) bool { return !h.Preferred || h.Nodes.Len() > 1 })
		}
		best := merge(p.all, resources, p.order)
		if best.Nodes == p.all {
			best.Nodes = 0
		}
		return best, best.Preferred
	case PolicyRestricted:
		best := merge(p.all, resources, p.order)
		return best, best.Preferred
	default:
		return merge(p.all, resources, p.order), true
	}
}

// flatten returns the hints of each resource. A resource without preference has one hint for anywhere that is
// preferred, and one that cannot be served such a hint that is not.
func flatten(providers []map[string][]numa.Hint) (resources [][]numa.Hint) {
	for _, hints := range providers {
		for _, list := range hints {
			switch {
			case list == nil:
				list = []numa.Hint{{Preferred: true}}
			case len(list) == 0:
				list = []numa.Hint{{}}
			}
			resources = append(resources, list)
		}
	}
	return resources
}
