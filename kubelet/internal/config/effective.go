package config

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"
)

// masked stands for a value that may be secret, as in kubelet's log.
const masked = "<masked>"

// Detected has values that are in effect in place of those in the settings.
type Detected struct {
	// Verbosity is how much is logged now.
	Verbosity int
	// CgroupDriver is that of the runtime, which wins; "" if it reports none, or none yet.
	CgroupDriver string
	// ResolvConf is the file of the name servers that was found on the machine.
	ResolvConf string
}

// The fields of cgroups and of the collection of images have no effect with the embedded runtime,
// whose pods have no cgroups and whose images take no space.
const notEmbeddedFields = "cgroupRoot cgroupDriver kubeletCgroups systemCgroups enforceNodeAllocatable " +
	"systemReservedCgroup kubeReservedCgroup qosReserved " +
	"memoryThrottlingFactor memoryReservationPolicy imageGCLowThresholdPercent imageMinimumGCAge imageMaximumGCAge " +
	"maxOpenFiles featureGates.MemoryQoS featureGates.QOSReserved " + verificationFields + " " + memoryFields

// Effective returns the configuration that is in effect, as a KubeletConfiguration in JSON: what
// was detected over flags over files over defaults, without the fields that have no effect. Headers
// of the URL of manifests are masked.
func (s *Settings) Effective(d Detected) (map[string]any, error) {
	c := s.KubeletConfiguration
	c.APIVersion, c.Kind = apiVersion, kind
	c.Logging.Verbosity = uint32(max(0, d.Verbosity))
	c.CgroupDriver = cmp.Or(d.CgroupDriver, c.CgroupDriver)
	if d.ResolvConf != "" {
		c.ResolverConfig = &d.ResolvConf
	}
	if !s.OnMachine() {
		c.CgroupsPerQOS = ptr.To(false)
	}
	if s.Embedded {
		c.ImageGCHighThresholdPercent = ptr.To[int32](100)
	}
	c.StaticPodURLHeader = maps.Clone(c.StaticPodURLHeader)
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{masked}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	without := notImplemented("", fields)
	if !s.attachesVolumes() {
		without = append(without, controllerAttachField)
	}
	if !s.program.Tracing {
		without = append(without, tracingField)
	}
	if s.Kubeconfig == "" {
		without = append(without, strings.Fields(clusterFields)...)
	}
	if !s.OnMachine() {
		without = append(without, strings.Fields(notEmbeddedFields)...)
	}
	for _, path := range without {
		remove(fields, strings.Split(path, "."))
	}
	return fields, nil
}

// remove removes the field of the path, and what has no other field above it.
func remove(fields map[string]any, path []string) {
	if len(path) > 1 {
		if below, ok := fields[path[0]].(map[string]any); ok {
			if remove(below, path[1:]); len(below) > 0 {
				return
			}
		}
	}
	delete(fields, path[0])
}

// flagValues returns the flags with their values, without those that have no effect.
func flagValues(fs *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(ignored); ok {
			return
		}
		values[f.Name] = f.Value.String()
		if f.Name == "manifest-url-header" && values[f.Name] != "" {
			values[f.Name] = masked
		}
	})
	return values
}
