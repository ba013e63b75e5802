package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// load reads a KubeletConfiguration. An unknown field is an error. The warnings name the
// fields that are known but not implemented.
func load(path string, into *kubeletconfig.KubeletConfiguration) (warnings []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	const kind = "KubeletConfiguration"
	if version := kubeletconfig.SchemeGroupVersion.String(); fields["kind"] != kind || fields["apiVersion"] != version {
		return nil, fmt.Errorf("configuration %s: apiVersion is %v and kind is %v, want %s and %s", path, fields["apiVersion"], fields["kind"], version, kind)
	}
	// kubelet's decoder: strict and case-sensitive.
	scheme := runtime.NewScheme()
	if err := kubeletconfig.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode(data, nil, into); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	for _, field := range notImplemented("", fields) {
		warnings = append(warnings, fmt.Sprintf("configuration %s: field %s is not implemented and has no effect", path, field))
	}
	// As with kubelet, paths in the file are relative to the directory of the file.
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{&into.StaticPodPath, &into.PodLogsDir, into.ResolverConfig} {
		if p != nil && *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return warnings, nil
}

// implemented are the fields of a KubeletConfiguration that have an effect here. A name
// stands for all fields below it.
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
