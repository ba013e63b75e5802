package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
)

// topologyFields are the fields of what places containers.
const topologyFields = `cpuManagerPolicy cpuManagerPolicyOptions topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions
	featureGates.CPUManagerPolicyAlphaOptions featureGates.CPUManagerPolicyBetaOptions`

// The feature gates of exclusive CPUs, and the policies of kubelet's CPU manager.
const (
	cpuAlphaGate = "CPUManagerPolicyAlphaOptions"
	cpuBetaGate  = "CPUManagerPolicyBetaOptions"

	cpuPolicyNone   = "none"
	cpuPolicyStatic = "static"
)

// addTopologyFlags binds the flags of what places containers.
func (s *Settings) addTopologyFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.CPUManagerPolicy, "cpu-manager-policy", s.CPUManagerPolicy,
		"static gives containers of Guaranteed pods that request whole CPUs CPUs of their own; none does not")
	fs.Var(cliflag.NewMapStringStringNoSplit(&s.CPUManagerPolicyOptions), "cpu-manager-policy-options",
		"an option of the static policy, as in full-pcpus-only=true; can be repeated")
	fs.BoolVar(&s.ResetCPUs, "reset-cpu-manager-state", false, "drop the assignments of CPUs in cpu_manager_state "+
		"that do not go with the policy or the machine, also while their pods run: those that do are kept; kubelet "+
		"has no such flag")
	fs.StringVar(&s.TopologyManagerPolicy, "topology-manager-policy", s.TopologyManagerPolicy,
		"how close the resources of a container have to be: none, best-effort, restricted or single-numa-node")
	fs.StringVar(&s.TopologyManagerScope, "topology-manager-scope", s.TopologyManagerScope,
		"what has to be close: the resources of each container, or those of the pod")
	fs.Var(cliflag.NewMapStringString(&s.TopologyManagerPolicyOptions), "topology-manager-policy-options",
		"options of the topology policy, as in prefer-closest-numa-nodes=true,max-allowable-numa-nodes=10")
}

// topologyDefaults are kubelet's.
func topologyDefaults(c *KubeletConfiguration) {
	def(&c.CPUManagerPolicy, cpuPolicyNone)
	def(&c.TopologyManagerPolicy, topology.PolicyNone)
	def(&c.TopologyManagerScope, string(topology.ScopeContainer))
}

// warnTopology adds a warning for what has no effect.
func (s *Settings) warnTopology() {
	if s.ReservedSystemCPUs != "" && (s.CPUManagerPolicy != cpuPolicyStatic || s.Embedded) {
		s.less(fmt.Sprintf("reservedSystemCPUs %s: their number counts for what pods can request; containers are "+
			"kept off them only with cpuManagerPolicy static and its option %s", s.ReservedSystemCPUs,
			cpus.OptionStrictReservation),
			"reservedSystemCPUs", "--reserved-cpus")
	}
	if s.Embedded && s.CPUManagerPolicy == cpuPolicyStatic {
		s.less("cpuManagerPolicy static: an effect only with a container runtime", "cpuManagerPolicy",
			"--cpu-manager-policy")
	}
}

// validateTopology judges as kubelet does when it reads its configuration, and when it starts.
func (s *Settings) validateTopology() (errs []error) {
	switch p := s.TopologyManagerPolicy; p {
	case topology.PolicyNone, topology.PolicyBestEffort, topology.PolicyRestricted, topology.PolicySingleNUMANode:
	default:
		errs = append(errs, fmt.Errorf("topologyManagerPolicy %q: must be %s, %s, %s or %s", p, topology.PolicyNone,
			topology.PolicyBestEffort, topology.PolicyRestricted, topology.PolicySingleNUMANode))
	}
	switch scope := topology.Scope(s.TopologyManagerScope); scope {
	case topology.ScopeContainer, topology.ScopePod:
	default:
		errs = append(errs, fmt.Errorf("topologyManagerScope %q: must be %s or %s", scope, topology.ScopeContainer,
			topology.ScopePod))
	}
	if s.TopologyManagerPolicy != topology.PolicyNone { // otherwise kubelet does not read them
		if _, err := topology.ParsePolicyOptions(s.TopologyManagerPolicyOptions); err != nil {
			errs = append(errs, fmt.Errorf("topologyManagerPolicyOptions: %w", err))
		}
	}
	switch s.CPUManagerPolicy {
	case cpuPolicyNone:
		if len(s.CPUManagerPolicyOptions) > 0 {
			errs = append(errs, errors.New("cpuManagerPolicyOptions: need cpuManagerPolicy static"))
		}
	case cpuPolicyStatic:
		errs = append(errs, s.validateCPUOptions()...)
	default:
		errs = append(errs, fmt.Errorf("cpuManagerPolicy %q: must be %s or %s", s.CPUManagerPolicy,
			cpuPolicyNone, cpuPolicyStatic))
	}
	return errs
}

// validateCPUOptions checks the options of the static policy, and that a CPU is reserved.
func (s *Settings) validateCPUOptions() (errs []error) {
	if _, err := cpus.ParsePolicyOptions(s.CPUManagerPolicyOptions); err != nil {
		errs = append(errs, fmt.Errorf("cpuManagerPolicyOptions: %w", err))
	}
	for _, name := range slices.Sorted(maps.Keys(s.CPUManagerPolicyOptions)) {
		gate, on := "", true
		switch name {
		case cpus.OptionAlignBySocket, cpus.OptionDistributeCores:
			gate, on = cpuAlphaGate, s.FeatureGates[cpuAlphaGate]
		case cpus.OptionDistributeNUMA:
			gate, on = cpuBetaGate, s.gateByDefault(cpuBetaGate)
		}
		if !on {
			errs = append(errs, fmt.Errorf("cpuManagerPolicyOptions.%s: needs the feature gate %s", name, gate))
		}
	}
	if reserved, err := s.Reserved(); err == nil && reserved.Cpu().Sign() <= 0 && !s.Embedded {
		errs = append(errs, errors.New("cpuManagerPolicy static: no CPU is reserved; give systemReserved or "+
			"kubeReserved some cpu, or set reservedSystemCPUs"))
	}
	return errs
}

// gateByDefault returns the value of a gate that is on by default.
func (s *Settings) gateByDefault(name string) bool {
	on, given := s.FeatureGates[name]
	return on || !given
}

// StaticCPUs reports whether containers have exclusive CPUs.
func (s *Settings) StaticCPUs() bool { return s.CPUManagerPolicy == cpuPolicyStatic && s.OnMachine() }

// CPUOptions returns the options of exclusive CPUs. They lack what comes from the agent.
func (s *Settings) CPUOptions() (cpus.Options, error) {
	policy, err := cpus.ParsePolicyOptions(s.CPUManagerPolicyOptions)
	if err != nil {
		return cpus.Options{}, err
	}
	reserved, err := s.reservedCPUs()
	if err != nil {
		return cpus.Options{}, err
	}
	total, err := s.Reserved()
	if err != nil {
		return cpus.Options{}, err
	}
	const perCPU = 1000
	return cpus.Options{
		PolicyOptions: policy, Reserved: reserved, ReservedCount: int((total.Cpu().MilliValue() + perCPU - 1) / perCPU),
		Reset: s.ResetCPUs, WholePods: s.ManagesWholePods(),
	}, nil
}

// TopologyOptions returns the options of the topology policy.
func (s *Settings) TopologyOptions() (topology.PolicyOptions, error) {
	if s.TopologyManagerPolicy == topology.PolicyNone {
		return topology.PolicyOptions{}, nil
	}
	return topology.ParsePolicyOptions(s.TopologyManagerPolicyOptions)
}
