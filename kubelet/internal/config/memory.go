package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// memoryFields are the fields of the memory manager.
const memoryFields = `memoryManagerPolicy reservedMemory`

// The policies of the memory manager.
const (
	noMemoryPolicy     = "None"
	staticMemoryPolicy = "Static"
)

// addMemoryFlags binds the flags of the memory manager.
func (s *Settings) addMemoryFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.MemoryManagerPolicy, "memory-manager-policy", s.MemoryManagerPolicy,
		"None, or Static to give containers of Guaranteed pods memory of chosen NUMA nodes; it needs --reserved-memory")
	fs.Var(&reservations{list: &s.ReservedMemory}, "reserved-memory", "memory of NUMA nodes that no container is "+
		"given, as in 0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi; in sum --system-reserved, --kube-reserved and "+
		"the hard eviction threshold; can be repeated")
	fs.BoolVar(&s.ResetMemoryState, "reset-memory-manager-state", false, "replace a state of the memory manager "+
		"that does not fit the machine or the settings by an empty one, also while pods of it run; kubelet has no "+
		"such flag (its file is removed by hand)")
}

// MemoryReservations returns reservedMemory; nil if the policy is None.
func (s *Settings) MemoryReservations() (out []memory.Reservation) {
	if s.MemoryManagerPolicy != staticMemoryPolicy {
		return nil
	}
	for _, r := range s.ReservedMemory {
		out = append(out, memory.Reservation{Node: int(r.NumaNode), Limits: r.Limits})
	}
	return out
}

// StaticMemory reports whether containers are given memory of chosen nodes.
func (s *Settings) StaticMemory() bool {
	return s.MemoryManagerPolicy == staticMemoryPolicy && s.OnMachine()
}

// validateMemory judges as kubelet does without the machine.
func (s *Settings) validateMemory() (errs []error) {
	switch s.MemoryManagerPolicy {
	case noMemoryPolicy:
	case staticMemoryPolicy:
		if len(s.ReservedMemory) == 0 {
			errs = append(errs, errors.New("memoryManagerPolicy Static: needs reservedMemory"))
		}
	default:
		errs = append(errs, fmt.Errorf("memoryManagerPolicy %q: must be %s or %s", s.MemoryManagerPolicy,
			noMemoryPolicy, staticMemoryPolicy))
	}
	type kind struct {
		node int32
		name v1.ResourceName
	}
	seen := map[kind]bool{}
	for _, r := range s.ReservedMemory {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			what := fmt.Sprintf("reservedMemory of NUMA node %d, %s", r.NumaNode, name)
			switch {
			case !isMemory(name):
				errs = append(errs, fmt.Errorf("%s: must be memory or hugepages-SIZE", what))
			case q.Sign() <= 0:
				errs = append(errs, fmt.Errorf("%s: %s must be above 0", what, q.String()))
			case seen[kind{r.NumaNode, name}]:
				errs = append(errs, fmt.Errorf("%s: is there twice", what))
			}
			seen[kind{r.NumaNode, name}] = true
		}
	}
	return errs
}

func isMemory(name v1.ResourceName) bool {
	_, huge := podspec.HugePageSize(name)
	return huge || name == v1.ResourceMemory
}

// warnMemory adds a warning for settings that have no effect.
func (s *Settings) warnMemory() {
	switch {
	case s.MemoryManagerPolicy == staticMemoryPolicy && !s.OnMachine():
		s.less("memoryManagerPolicy Static: an effect only with a container runtime", "memoryManagerPolicy",
			"--memory-manager-policy", "reservedMemory", "--reserved-memory")
	case s.MemoryManagerPolicy == noMemoryPolicy && len(s.ReservedMemory) > 0:
		s.less("reservedMemory: an effect only with memoryManagerPolicy Static", "reservedMemory", "--reserved-memory")
	}
}

// reservations is the flag of reservedMemory. The first one replaces those of the file, and the next ones add to it.
type reservations struct {
	list  *[]MemoryReservation
	given bool
}

func (r *reservations) String() string {
	if r.list == nil {
		return ""
	}
	var out []string
	for _, of := range *r.list {
		var amounts []string
		for _, name := range slices.Sorted(maps.Keys(of.Limits)) {
			q := of.Limits[name]
			amounts = append(amounts, string(name)+"="+q.String())
		}
		out = append(out, fmt.Sprintf("%d:%s", of.NumaNode, strings.Join(amounts, ",")))
	}
	return strings.Join(out, ";")
}

// Set implements [pflag.Value].
func (r *reservations) Set(text string) error {
	var list []MemoryReservation
	for part := range strings.SplitSeq(text, ";") {
		if part == "" && text == "" {
			continue
		}
		id, amounts, ok := strings.Cut(part, ":")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return fmt.Errorf("%q: must be NODE:memory=QUANTITY,hugepages-SIZE=QUANTITY", part)
		}
		of := MemoryReservation{NumaNode: int32(n), Limits: v1.ResourceList{}}
		for amount := range strings.SplitSeq(amounts, ",") {
			name, quantity, _ := strings.Cut(amount, "=")
			if !isMemory(v1.ResourceName(name)) {
				return fmt.Errorf("%q: must be memory or hugepages-SIZE, with a quantity", amount)
			}
			q, err := podspec.ParseQuantity(quantity)
			if err != nil {
				return fmt.Errorf("%q: %w", amount, err)
			}
			of.Limits[v1.ResourceName(name)] = q
		}
		list = append(list, of)
	}
	if !r.given {
		*r.list = nil
	}
	r.given = true
	*r.list = append(*r.list, list...)
	return nil
}

// Type implements [pflag.Value].
func (*reservations) Type() string { return "node:resource=quantity,...;..." }
