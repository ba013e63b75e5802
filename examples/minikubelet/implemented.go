package main

import (
	"slices"
	"strings"
)

// implemented are the fields of a KubeletConfiguration that have an effect here;
// a name without a dot stands for all below it.
const implemented = `apiVersion kind staticPodPath staticPodURL staticPodURLHeader httpCheckFrequency
	containerRuntimeEndpoint imageServiceEndpoint podLogsDir address readOnlyPort
	healthzPort healthzBindAddress enableServer fileCheckFrequency syncFrequency runtimeRequestTimeout maxPods clusterDNS
	clusterDomain resolvConf serializeImagePulls maxParallelImagePulls crashLoopBackOff logging.verbosity
	systemReserved kubeReserved runOnce featureGates.EventedPLEG podPidsLimit`

// notImplemented returns the dotted paths of the fields that have no effect, sorted.
func notImplemented(prefix string, fields map[string]any) []string {
	known := strings.Fields(implemented)
	var out []string
	for name, value := range fields {
		path := prefix + name
		if slices.Contains(known, path) {
			continue
		}
		below, isMap := value.(map[string]any)
		if isMap && slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, path+".") }) {
			out = append(out, notImplemented(path+".", below)...)
			continue
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}
