package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// The names of the options of the static policy. They are kubelet's.
const (
	OptionFullPCPUsOnly     = "full-pcpus-only"
	OptionDistributeNUMA    = "distribute-cpus-across-numa"
	OptionAlignBySocket     = "align-by-socket"
	OptionStrictReservation = "strict-cpu-reservation"
	OptionPreferUncoreCache = "prefer-align-cpus-by-uncorecache"
	OptionDistributeCores   = "distribute-cpus-across-cores"
)

// The names of policies: one of package topology, and those in checkpoints.
const (
	singleNUMANode           = "single-numa-node"
	policyNone, policyStatic = "none", "static"
)

// PolicyOptions are the options of the static policy (kubelet's cpuManagerPolicyOptions).
type PolicyOptions struct {
	// FullPCPUsOnly gives whole cores only (full-pcpus-only, KEP-2625): a pod that requests another number of CPUs is
	// refused.
	FullPCPUsOnly bool
	// DistributeNUMA gives CPUs evenly from all memory nodes if more than one is needed (distribute-cpus-across-numa,
	// KEP-2902).
	DistributeNUMA bool
	// AlignBySocket places by sockets instead of memory nodes (align-by-socket, KEP-3327). With DistributeNUMA, the
	// CPUs are from nodes of one socket if possible.
	AlignBySocket bool
	// StrictReservation keeps containers without exclusive CPUs off the reserved ones (strict-cpu-reservation,
	// KEP-4540).
	StrictReservation bool
	// PreferUncoreCache gives CPUs that share few caches of the last level (prefer-align-cpus-by-uncorecache,
	// KEP-4800).
	PreferUncoreCache bool
	// DistributeCores gives CPUs of different cores first (distribute-cpus-across-cores, KEP-4176).
	DistributeCores bool
}

// ParsePolicyOptions returns the options as kubelet has them in its configuration. The error joins all problems.
func ParsePolicyOptions(options map[string]string) (o PolicyOptions, _ error) {
	fields := map[string]*bool{
		OptionFullPCPUsOnly: &o.FullPCPUsOnly, OptionDistributeNUMA: &o.DistributeNUMA,
		OptionAlignBySocket:     &o.AlignBySocket,
		OptionStrictReservation: &o.StrictReservation, OptionPreferUncoreCache: &o.PreferUncoreCache,
		OptionDistributeCores: &o.DistributeCores,
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(options)) {
		field := fields[name]
		if field == nil {
			errs = append(errs, fmt.Errorf("cpus: option %q is unknown", name))
			continue
		}
		var err error
		if *field, err = strconv.ParseBool(options[name]); err != nil {
			errs = append(errs, fmt.Errorf("cpus: option %q: %w", name, err))
		}
	}
	return o, errors.Join(append(errs, o.check())...)
}

// check returns an error for each two options that exclude each other.
func (o PolicyOptions) check() error {
	var errs []error
	exclude := func(a, b bool, nameA, nameB string) {
		if a && b {
			errs = append(errs, fmt.Errorf("cpus: options %s and %s exclude each other", nameA, nameB))
		}
	}
	exclude(o.FullPCPUsOnly, o.DistributeCores, OptionFullPCPUsOnly, OptionDistributeCores)
	exclude(o.DistributeNUMA, o.DistributeCores, OptionDistributeNUMA, OptionDistributeCores)
	exclude(o.PreferUncoreCache, o.DistributeCores, OptionPreferUncoreCache, OptionDistributeCores)
	exclude(o.PreferUncoreCache, o.DistributeNUMA, OptionPreferUncoreCache, OptionDistributeNUMA)
	return errors.Join(errs...)
}

// Validate returns an error if the machine, or the policy of package topology, does not go with the options.
func (o PolicyOptions) Validate(machine numa.Machine, topologyPolicy string) error {
	if !o.AlignBySocket {
		return nil
	}
	if topologyPolicy == singleNUMANode {
		return fmt.Errorf("cpus: option %s and the topology policy %s exclude each other", OptionAlignBySocket,
			singleNUMANode)
	}
	if l := newLayout(machine); len(l.groups[socket]) > len(l.groups[node]) {
		return fmt.Errorf("cpus: option %s: the machine has %d sockets on %d memory nodes, and a node must not have "+
			"more than one", OptionAlignBySocket, len(l.groups[socket]), len(l.groups[node]))
	}
	return nil
}
