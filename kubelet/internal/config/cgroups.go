package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

// cgroupFields are the fields of cgroups.
const cgroupFields = `cgroupsPerQOS cgroupRoot cgroupDriver kubeletCgroups systemCgroups enforceNodeAllocatable systemReservedCgroup kubeReservedCgroup
	qosReserved memoryThrottlingFactor memoryReservationPolicy featureGates.MemoryQoS featureGates.QOSReserved`

// The feature gates of cgroups, and the policies of memory.
const (
	memoryQoSGate   = "MemoryQoS"
	qosReservedGate = "QOSReserved"

	noReservation     = "None"
	tieredReservation = "TieredReservation"
)

// enforceNone is the value of enforceNodeAllocatable that enforces nothing.
const enforceNone = "none"

// addCgroupFlags binds the flags of cgroups.
func (s *Settings) addCgroupFlags(fs *pflag.FlagSet) {
	fs.BoolVar(s.CgroupsPerQOS, "cgroups-per-qos", *s.CgroupsPerQOS,
		"give each pod a cgroup with its limits, below one for its quality-of-service class")
	fs.StringVar(&s.CgroupRoot, "cgroup-root", s.CgroupRoot, "cgroup that has those of pods below it")
	fs.StringVar(&s.CgroupDriver, "cgroup-driver", s.CgroupDriver, "driver of cgroups, cgroupfs or systemd, of a "+
		"runtime that does not report its own")
	fs.StringSliceVar(&s.EnforceNodeAllocatable, "enforce-node-allocatable", s.EnforceNodeAllocatable,
		"limits to enforce: pods, system-reserved, kube-reserved, system-reserved-compressible, "+
			"kube-reserved-compressible; or none (default pods with --cgroups-per-qos)")
	fs.StringVar(&s.SystemReservedCgroup, "system-reserved-cgroup", s.SystemReservedCgroup,
		"cgroup of the daemons of the system, which gets --system-reserved as limits; it must exist")
	fs.StringVar(&s.KubeReservedCgroup, "kube-reserved-cgroup", s.KubeReservedCgroup,
		"cgroup of the agent and the container runtime, which gets --kube-reserved as limits; it must exist")
	fs.StringVar(&s.KubeletCgroups, "kubelet-cgroups", s.KubeletCgroups, "cgroup that the agent moves to")
	fs.StringVar(&s.SystemCgroups, "system-cgroups", s.SystemCgroups,
		"cgroup that processes of the root cgroup move to")
	fs.StringVar(&s.RuntimeCgroups, "runtime-cgroups", "", "cgroup of the container runtime, for statistics")
	fs.Var(cliflag.NewMapStringString(&s.QOSReserved), "qos-reserved", "requested memory of a class that those "+
		"below it cannot use, as in memory=50%; needs the feature gate QOSReserved")
}

// cgroupDefaults are kubelet's. That of enforceNodeAllocatable depends on other fields.
func cgroupDefaults(c *KubeletConfiguration) {
	def(&c.CgroupsPerQOS, ptr.To(true))
	def(&c.CgroupRoot, "/")
	def(&c.CgroupDriver, string(cgroup.Cgroupfs))
	def(&c.MemoryReservationPolicy, noReservation)
}

// enforcement sets the default of enforceNodeAllocatable: pods, if they have cgroups.
func (s *Settings) enforcement() {
	if s.EnforceNodeAllocatable == nil && *s.CgroupsPerQOS && s.OnMachine() {
		s.EnforceNodeAllocatable = []string{string(cgroup.EnforcePods)}
	}
}

// warnCgroups adds a warning for what has no effect.
func (s *Settings) warnCgroups() {
	if len(s.QOSReserved) > 0 && !s.FeatureGates[qosReservedGate] {
		s.less("qosReserved: an effect only with the feature gate "+qosReservedGate, "qosReserved", "--qos-reserved")
	}
	if s.OnMachine() {
		return
	}
	var given []string
	for field, is := range map[string]bool{
		"cgroupRoot": s.CgroupRoot != "/", "cgroupDriver": s.CgroupDriver != string(cgroup.Cgroupfs),
		"kubeletCgroups": s.KubeletCgroups != "",
		"systemCgroups":  s.SystemCgroups != "", "qosReserved": len(s.QOSReserved) > 0,
		"systemReservedCgroup": s.SystemReservedCgroup != "", "kubeReservedCgroup": s.KubeReservedCgroup != "",
		"enforceNodeAllocatable": len(s.EnforceNodeAllocatable) > 0 && !slices.Equal(s.EnforceNodeAllocatable,
			[]string{enforceNone}),
	} {
		if is {
			given = append(given, field)
		}
	}
	if len(given) == 0 {
		return
	}
	slices.Sort(given)
	flags := map[string]string{
		"cgroupRoot": "--cgroup-root", "cgroupDriver": "--cgroup-driver", "kubeletCgroups": "--kubelet-cgroups",
		"systemCgroups": "--system-cgroups", "qosReserved": "--qos-reserved",
		"systemReservedCgroup": "--system-reserved-cgroup", "kubeReservedCgroup": "--kube-reserved-cgroup",
		"enforceNodeAllocatable": "--enforce-node-allocatable",
	}
	names := slices.Clone(given)
	for _, field := range given {
		names = append(names, flags[field])
	}
	s.less(strings.Join(given, ", ")+": an effect only with a container runtime", names...)
}

// validateCgroups judges as kubelet does.
func (s *Settings) validateCgroups() (errs []error) {
	if _, err := cgroup.New(cgroup.Options{Root: s.CgroupRoot,
		DefaultDriver: cgroup.Driver(s.CgroupDriver)}); err != nil {
		errs = append(errs, fmt.Errorf("cgroupRoot or cgroupDriver: %w", err))
	}
	seen := map[string]bool{}
	for _, level := range s.EnforceNodeAllocatable {
		if seen[level] {
			errs = append(errs, fmt.Errorf("enforceNodeAllocatable: %s is there twice", level))
		}
		seen[level] = true
		switch cgroup.Enforcement(level) {
		case enforceNone:
			if len(s.EnforceNodeAllocatable) > 1 {
				errs = append(errs, errors.New("enforceNodeAllocatable: none cannot stand beside others"))
			}
			continue
		case cgroup.EnforcePods:
		case cgroup.EnforceSystemReserved, cgroup.EnforceSystemReservedCompressible:
			if s.SystemReservedCgroup == "" {
				errs = append(errs, fmt.Errorf("enforceNodeAllocatable %s: give the cgroup in systemReservedCgroup",
					level))
			}
		case cgroup.EnforceKubeReserved, cgroup.EnforceKubeReservedCompressible:
			if s.KubeReservedCgroup == "" {
				errs = append(errs, fmt.Errorf("enforceNodeAllocatable %s: give the cgroup in kubeReservedCgroup",
					level))
			}
		default:
			errs = append(errs, fmt.Errorf("enforceNodeAllocatable %q: must be pods, system-reserved, "+
				"kube-reserved, system-reserved-compressible, kube-reserved-compressible or none", level))
		}
		if !*s.CgroupsPerQOS {
			errs = append(errs, fmt.Errorf("enforceNodeAllocatable %s: needs cgroupsPerQOS", level))
		}
	}
	for _, pair := range [][2]cgroup.Enforcement{{cgroup.EnforceSystemReserved,
		cgroup.EnforceSystemReservedCompressible},
		{cgroup.EnforceKubeReserved, cgroup.EnforceKubeReservedCompressible}} {
		if seen[string(pair[0])] && seen[string(pair[1])] {
			errs = append(errs, fmt.Errorf("enforceNodeAllocatable: %s and %s exclude each other", pair[0], pair[1]))
		}
	}
	if s.ReservedSystemCPUs != "" && (s.SystemReservedCgroup != "" || s.KubeReservedCgroup != "") {
		errs = append(errs, errors.New("reservedSystemCPUs: cannot stand beside systemReservedCgroup and "+
			"kubeReservedCgroup"))
	}
	if strings.Trim(s.SystemCgroups, "/") == "" && s.SystemCgroups != "" {
		errs = append(errs, errors.New("systemCgroups: cannot be the root cgroup"))
	}
	const oldFactor = 0.9 // a default up to kubelet 1.36, which is in files
	switch f := s.MemoryThrottlingFactor; {
	case f == nil:
	case *f <= 0 || *f > 1:
		errs = append(errs, fmt.Errorf("memoryThrottlingFactor %v: must be above 0, and at most 1", *f))
	case *f != oldFactor && !s.gateOn(memoryQoSGate):
		errs = append(errs, fmt.Errorf("memoryThrottlingFactor %v: needs the feature gate %s", *f, memoryQoSGate))
	}
	switch policy := s.MemoryReservationPolicy; {
	case policy == tieredReservation && !s.gateOn(memoryQoSGate):
		errs = append(errs, fmt.Errorf("memoryReservationPolicy %s: needs the feature gate %s", policy, memoryQoSGate))
	case policy != noReservation && policy != tieredReservation:
		errs = append(errs, fmt.Errorf("memoryReservationPolicy %q: must be %s or %s", policy,
			noReservation, tieredReservation))
	}
	_, err := s.qosReserved()
	return append(errs, err)
}

// qosReserved returns the percentage in qosReserved; nil if there is none, or its feature gate is off.
func (s *Settings) qosReserved() (*int64, error) {
	if len(s.QOSReserved) == 0 || !s.FeatureGates[qosReservedGate] {
		return nil, nil
	}
	var percent *int64
	for name, text := range s.QOSReserved {
		number, ok := strings.CutSuffix(text, "%")
		n, err := strconv.ParseInt(number, 10, 64)
		switch {
		case name != string(v1.ResourceMemory):
			return nil, fmt.Errorf("qosReserved.%s: only memory can be reserved", name)
		case !ok || err != nil || n < 0 || n > 100:
			return nil, fmt.Errorf("qosReserved.memory %q: must be a percentage such as 50%%", text)
		}
		percent = &n
	}
	return percent, nil
}

// Cgroups returns the cgroups of pods that the settings describe; nil if pods have none. The
// driver of the runtime is a function, since it is known later.
//
// The embedded runtime has none: a kubelet on the same machine would take pods below its
// kubepods for its own, and kill them.
func (s *Settings) Cgroups(driver func() string) (*cgroup.Pods, error) {
	if !s.OnMachine() || !*s.CgroupsPerQOS {
		return nil, nil
	}
	return cgroup.New(cgroup.Options{Root: s.CgroupRoot, Driver: driver, DefaultDriver: cgroup.Driver(s.CgroupDriver)})
}

// CgroupOptions returns the options of what makes the cgroups. They lack what comes from the machine and the agent.
func (s *Settings) CgroupOptions() (cgroup.ManagerOptions, error) {
	system, kube, err := s.reservedLists()
	if err != nil {
		return cgroup.ManagerOptions{}, err
	}
	percent, err := s.qosReserved()
	if err != nil {
		return cgroup.ManagerOptions{}, err
	}
	opts := cgroup.ManagerOptions{
		Policy: cgroup.Policy{
			NoCPUQuota: !*s.CPUCFSQuota, CPUPeriod: s.CPUCFSQuotaPeriod.Microseconds(),
			PodPidsLimit:           ptr.Deref(s.PodPidsLimit, -1),
			MemoryReservation:      s.MemoryReservationPolicy == tieredReservation,
			MemoryThrottlingFactor: ptr.Deref(s.MemoryThrottlingFactor, 0),
		},
		MemoryQoS: s.gateOn(memoryQoSGate), ReservedMemory: percent,
		SystemReserved: system, KubeReserved: kube, SystemReservedCgroup: s.SystemReservedCgroup,
		KubeReservedCgroup: s.KubeReservedCgroup,
		KubeletCgroup:      s.KubeletCgroups, SystemCgroup: s.SystemCgroups,
	}
	for _, level := range s.EnforceNodeAllocatable {
		if level != enforceNone {
			opts.Enforce = append(opts.Enforce, cgroup.Enforcement(level))
		}
	}
	return opts, nil
}
