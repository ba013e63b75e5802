package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// Reservation is memory of a node that no container is given (kubelet's reservedMemory).
type Reservation struct {
	Node int
	// Limits are of v1.ResourceMemory and huge pages.
	Limits v1.ResourceList
}

// newMachineState returns the state of a machine on which no container has memory, or all that is wrong.
func newMachineState(machine numa.Machine, reserved []Reservation, ofNode v1.ResourceList) (*machineState, error) {
	if n := len(machine.Nodes); n == 0 || n > numa.MaxNodes || machine.Nodes[n-1].ID >= numa.MaxNodes {
		return nil, fmt.Errorf("the machine has %d NUMA nodes; 1 to %d are possible", n, numa.MaxNodes)
	}
	s := &machineState{nodes: state.NUMANodeMap{}, entries: state.ContainerMemoryAssignments{},
		pods: state.PodMemoryAssignments{}}
	for _, n := range machine.Nodes {
		tables := map[v1.ResourceName]*state.MemoryTable{}
		left := n.Memory
		for size, count := range n.HugePages {
			name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size),
				resource.BinarySI).String())
			tables[name] = &state.MemoryTable{TotalMemSize: size * count, Allocatable: size * count}
			left -= min(left, size*count)
		}
		tables[v1.ResourceMemory] = &state.MemoryTable{TotalMemSize: n.Memory, Allocatable: left}
		s.nodes[n.ID] = &state.NUMANodeState{MemoryMap: tables, Cells: []int{n.ID}}
	}
	err := errors.Join(append(s.reserve(reserved), sums(reserved, ofNode)...)...)
	for _, n := range s.nodes {
		for _, t := range n.MemoryMap {
			t.Free = t.Allocatable
		}
	}
	return s, err
}

// reserve takes the reservations from what is allocatable.
func (s *machineState) reserve(reserved []Reservation) (errs []error) {
	for _, r := range reserved {
		if s.nodes[r.Node] == nil {
			errs = append(errs, fmt.Errorf("memory is reserved of the NUMA node %d, which the machine does not have",
				r.Node))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			size, ok := q.AsInt64()
			t := s.nodes[r.Node].MemoryMap[name]
			switch {
			case !isMemory(name):
				errs = append(errs, fmt.Errorf("%q is reserved of NUMA node %d, and is neither memory nor huge "+
					"pages of a size", name, r.Node))
			case !ok || size <= 0:
				errs = append(errs, fmt.Errorf("%s of %s is reserved of NUMA node %d: it is no number of bytes",
					q.String(), name, r.Node))
			case t == nil:
				errs = append(errs, fmt.Errorf("%s is reserved of NUMA node %d, which has none", name, r.Node))
			case t.SystemReserved != 0:
				errs = append(errs, fmt.Errorf("%s is reserved of NUMA node %d more than once", name, r.Node))
			case uint64(size) > t.Allocatable:
				errs = append(errs, fmt.Errorf("%s of %s is reserved of NUMA node %d, which has %d bytes", q.String(),
					name, r.Node, t.Allocatable))
			default:
				t.SystemReserved = uint64(size)
				t.Allocatable -= uint64(size)
			}
		}
	}
	return errs
}

// sums reports each resource of which the nodes together reserve another amount than the machine, and that no memory is
// reserved.
func sums(reserved []Reservation, ofNode v1.ResourceList) (errs []error) {
	sum, want := v1.ResourceList{}, v1.ResourceList{v1.ResourceMemory: {}}
	for name, q := range ofNode {
		if isMemory(name) {
			want[name] = q
		}
	}
	for _, r := range reserved {
		for name, q := range r.Limits {
			if !isMemory(name) {
				continue
			}
			total := sum[name]
			total.Add(q)
			sum[name] = total
			if _, ok := want[name]; !ok {
				want[name] = resource.Quantity{}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w, s := want[name], sum[name]
		if w.Cmp(s) != 0 {
			errs = append(errs, fmt.Errorf("%s of %s is reserved of all NUMA nodes together, and %s by "+
				"kube-reserved, system-reserved and "+
				"the hard eviction threshold: they must be equal", s.String(), name, w.String()))
		}
	}
	if q := sum[v1.ResourceMemory]; q.Sign() <= 0 {
		errs = append(errs,
			errors.New("no memory is reserved for the system: the policy Static needs reservations of memory"))
	}
	return errs
}
