package config

import (
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/prober"
)

// eventedPLEG is the feature gate that has an effect here: whether the PLEG uses the
// events of the runtime. Unlike kubelet's it is on by default; a runtime without events is
// relisted every second.
const eventedPLEG = "EventedPLEG"

// The feature gates of pod-level resources, of exclusive CPUs and memory for them, of their resize, and of another
// period than the default of cpuCFSQuotaPeriod.
const (
	podLevelGate  = "PodLevelResources"
	managersGate  = "PodLevelResourceManagers"
	podResizeGate = "InPlacePodLevelResourcesVerticalScaling"
	cpuPeriodGate = "CustomCPUCFSQuotaPeriod"
	deferGate     = "InPlacePodVerticalScalingSchedulerPreemption"
	volumesGate   = "InPlacePodVerticalScalingMemoryBackedVolumes"
)

// The feature gates of new fields of pods.
const (
	emptyDirModeGate = "EmptyDirVolumeMode"
	fileOwnersGate   = "AtomicWriteVolumeUserFields"
	grpcTLSGate      = "GRPCContainerProbeTLS"
	h2cGate          = "H2CContainerProbe"
	mountOptionsGate = "VolumeBindMountOptions"
)

// seLinuxGate is the feature gate of mounts with an SELinux label.
const seLinuxGate = "SELinuxMount"

// skipsGate is the feature gate of claims whose devices skip calls of their drivers.
const skipsGate = "DRAOptionalNodeOperations"

// UserNamespaceGate is the feature gate of an agent in a user namespace.
const UserNamespaceGate = "KubeletInUserNamespace"

const defaultCPUPeriod = 100 * time.Millisecond

// knownGates has a line for each gate that kubelet accepts.
//
//go:embed feature_gates.txt
var knownGates string

// gate is a feature gate of kubelet.
type gate struct {
	on   bool   // by default
	here string // what minikubelet does with it, see feature_gates.txt
}

// findGate returns the gate of that name.
func findGate(name string) (g gate, ok bool) {
	for n, g := range eachGate() {
		if n == name {
			return g, true
		}
	}
	return gate{}, false
}

// eachGate ranges over the gates with their names.
func eachGate() iter.Seq2[string, gate] {
	return func(yield func(string, gate) bool) {
		for line := range strings.Lines(knownGates) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			on, here, _ := strings.Cut(rest, " ")
			if name != "#" && !yield(name, gate{on == "true", here}) {
				return
			}
		}
	}
}

// judgeGate returns an error if a gate cannot have the value, and a warning if it has no effect that
// kubelet's would have. A feature that a user switches off is never on.
func judgeGate(name string, on bool) (warning string, err error) {
	g, known := findGate(name)
	switch {
	case !known:
		return "", fmt.Errorf("feature gate %s: kubelet 1.37 has no such gate; remove it", name)
	case g.here == "locked" && on != g.on:
		return "", fmt.Errorf("feature gate %s: kubelet 1.37 has it locked to %t; remove it", name, g.on)
	case g.here == "client" && on != g.on:
		return "", fmt.Errorf("feature gate %s: remove it, and set the environment variable KUBE_FEATURE_%s=%t, "+
			"which the client reads", name, name, on)
	case g.here == "always" && !on && g.on:
		return "", fmt.Errorf("feature gate %s: the feature cannot be switched off here; remove it, or run a kubelet",
			name)
	case g.here == "always" && !on:
		return fmt.Sprintf("feature gate %s: the feature is always on here", name), nil
	case g.here == "missing" && on:
		return fmt.Sprintf("feature gate %s is not implemented and has no effect", name), nil
	case g.here == "group" && !on && name == "AllBeta":
		return "", fmt.Errorf("feature gate %s: the features of this stage cannot all be switched off here; remove "+
			"it, or run a kubelet", name)
	case g.here == "group" && on:
		return fmt.Sprintf("feature gate %s has no effect here: name the gates that are to be on", name), nil
	}
	return "", nil
}

// validateGates returns an error for each gate that cannot have its value.
func (s *Settings) validateGates() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		_, err := judgeGate(name, s.FeatureGates[name])
		errs = append(errs, err)
	}
	if on, period := s.gateOn(cpuPeriodGate), s.CPUCFSQuotaPeriod.Duration; !on && period != defaultCPUPeriod {
		errs = append(errs, fmt.Errorf("cpuCFSQuotaPeriod %s: another period than %s needs the feature gate %s", period,
			defaultCPUPeriod, cpuPeriodGate))
	}
	for name, g := range eachGate() {
		if g.here == "part" && !s.gateOn(name) && s.PodLevelResources() {
			errs = append(errs, fmt.Errorf("feature gate %s: cannot be switched off here while %s is on; switch off "+
				"both, or run a kubelet", name, podLevelGate))
		}
	}
	if s.gateOn(managersGate) && !s.PodLevelResources() {
		errs = append(errs, fmt.Errorf("feature gate %s: needs the feature gate %s", managersGate, podLevelGate))
	}
	return errors.Join(errs...)
}

// warnGates adds a warning for each gate without the effect that it has in kubelet.
func (s *Settings) warnGates() {
	for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		if warning, _ := judgeGate(name, s.FeatureGates[name]); warning != "" {
			s.less(warning, gatesField+name, "--feature-gates")
		}
	}
}

// gatesField is how the names of gates in a file begin.
const gatesField = "featureGates."

// gates is the value of --feature-gates, in kubelet's form: "A=true,B=false".
type gates struct{ target *map[string]bool }

func (g gates) String() string {
	if g.target == nil {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*g.target)) {
		out = append(out, fmt.Sprintf("%s=%t", name, (*g.target)[name]))
	}
	return strings.Join(out, ",")
}

func (g gates) Set(text string) error {
	set := maps.Clone(*g.target)
	if set == nil {
		set = map[string]bool{}
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if name == "" || err != nil {
			return fmt.Errorf("%q: must be a name and true or false, as in %s=false", part, eventedPLEG)
		}
		set[strings.TrimSpace(name)] = on
	}
	*g.target = set
	return nil
}

func (gates) Type() string { return "name=bool,..." }

// PodsAPI reports whether the pods API is served.
func (s *Settings) PodsAPI() bool { return s.gateOn("PodsAPI") }

// SkipsDriverCalls reports whether calls of DRA drivers are left out that the devices of a claim skip.
func (s *Settings) SkipsDriverCalls() bool { return s.gateOn(skipsGate) }

// InUserNamespace reports whether an agent in a user namespace goes on without what it may not do there, and the node
// object has whether it is in one.
func (s *Settings) InUserNamespace() bool { return s.gateOn(UserNamespaceGate) }

// CompareTaints reports whether tolerations compare the values of taints.
func (s *Settings) CompareTaints() bool { return s.gateOn("TaintTolerationComparisonOperators") }

// DNSOnlyCertificates reports whether a serving certificate can be one without an IP address.
func (s *Settings) DNSOnlyCertificates() bool { return s.gateOn("AllowDNSOnlyNodeCSR") }

// AllocatedPods reports whether /allocatedPods is served.
func (s *Settings) AllocatedPods() bool { return s.gateOn("KubeletAllocatedPodsEndpoint") }

// FirstBackoff returns the wait after the second exit of a container, 0 for the default.
func (s *Settings) FirstBackoff() time.Duration {
	if s.gateOn("ReduceDefaultCrashLoopBackOffDecay") {
		return time.Second
	}
	return 0
}

// PodLevelResources reports whether the field resources of the spec of a pod has an effect.
func (s *Settings) PodLevelResources() bool { return s.gateOn(podLevelGate) }

// ManagesWholePods reports whether pods with resources as a whole get exclusive CPUs and memory of NUMA nodes.
func (s *Settings) ManagesWholePods() bool { return s.gateOn(managersGate) }

// DeferResizes reports whether a resize of a critical pod preempts no pods.
func (s *Settings) DeferResizes() bool { return s.gateOn(deferGate) }

// RefuseVolumeResizes returns why volumes in memory cannot be resized, in kubelet's words; "" if they can.
func (s *Settings) RefuseVolumeResizes(cgroupV1 func() bool) string {
	switch {
	case !s.gateOn(volumesGate):
		return "Memory-backed emptyDir volume resize is disabled"
	case cgroupV1():
		return "Memory-backed emptyDir volume resize is not supported on cgroups v1"
	}
	return ""
}

// Volumes returns the options of volumes that come from feature gates.
func (s *Settings) Volumes() volume.Options {
	return volume.Options{EmptyDirModes: s.gateOn(emptyDirModeGate), FileOwners: s.gateOn(fileOwnersGate),
		OnlyOncePod: !s.gateOn(seLinuxGate)}
}

// Probes returns the options of probes that come from feature gates.
func (s *Settings) Probes() prober.Options {
	return prober.Options{GRPCTLS: s.gateOn(grpcTLSGate), H2C: s.gateOn(h2cGate)}
}

// Evented reports whether the event stream of the runtime is to be used.
func (s *Settings) Evented() bool {
	on, given := s.FeatureGates[eventedPLEG]
	return on || !given
}
