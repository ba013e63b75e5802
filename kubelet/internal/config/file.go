package config

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goyaml "go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The types of the configuration file are copies of kubelet's in types.go, since those link
// the metrics registry of Kubernetes, which would cost each supervisor of a container a
// millisecond.
const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kind       = "KubeletConfiguration"
)

// dropIn is how the names of files in --config-dir end, as in kubelet. Other files are not
// read.
const dropIn = ".conf"

// unset are the fields that the JSON of a KubeletConfiguration of k8s.io/kubelet has though they are not set: those
// without omitempty, and structs. TestUnset finds a new one.
const unset = `syncFrequency fileCheckFrequency httpCheckFrequency authentication.x509 authentication.webhook.cacheTTL
	authentication.anonymous authentication.webhook authorization.webhook.cacheAuthorizedTTL
	authorization.webhook.cacheUnauthorizedTTL streamingConnectionIdleTimeout nodeStatusUpdateFrequency
	nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
	runtimeRequestTimeout evictionPressureTransitionPeriod memorySwap logging.flushFrequency logging.verbosity
	logging.options.text.infoBufferSize logging.options.json.infoBufferSize shutdownGracePeriod
	shutdownGracePeriodCriticalPods crashLoopBackOff containerRuntimeEndpoint`

// dropUnset removes a field that is 0, a duration of 0 or empty, and the fields above it that are empty then.
func dropUnset(fields map[string]any, path []string) {
	value, ok := fields[path[0]]
	below, isMap := value.(map[string]any)
	switch {
	case !ok:
	case isMap && len(path) > 1:
		if dropUnset(below, path[1:]); len(below) == 0 {
			delete(fields, path[0])
		}
	case len(path) == 1 && (isMap && len(below) == 0 || value == nil || value == "" || value == "0s" || value == "0" ||
		value == 0.0 || value == int64(0)):
		delete(fields, path[0])
	}
}

// dropIns returns the files of a directory of configurations, in the order of their paths.
func dropIns(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == dropIn {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// orMissing returns the value, or "missing" in place of nil.
func orMissing(value any) any {
	if value == nil {
		return "missing"
	}
	return value
}

// withField returns the error with the name of the field that causes it, if it is one field of
// the content: the errors of durations do not have it.
func withField(err error, content map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		data, merr := stdjson.Marshal(map[string]any{name: content[name]})
		if merr != nil {
			continue
		}
		if _, ferr := decode(data, &KubeletConfiguration{}); ferr != nil && ferr.Error() == err.Error() &&
			!strings.Contains(err.Error(), name) {
			return fmt.Errorf("field %s: %w", name, err)
		}
	}
	return err
}

// toJSON returns YAML or JSON as JSON. As in kubelet, what begins with a brace is JSON. Of a field that is given more
// than once the last value counts; repeated are these.
func toJSON(data []byte) (content []byte, repeated []Given, err error) {
	if text := bytes.TrimSpace(data); bytes.HasPrefix(text, []byte("{")) {
		if err := stdjson.Unmarshal(text, new(any)); err != nil { // the decoder below takes text after the object
			return nil, nil, err
		}
		return text, repeatedFields(text), nil
	}
	if content, err = yaml.YAMLToJSONStrict(data); err == nil {
		return content, nil, nil
	}
	strict := err
	if content, err = yaml.YAMLToJSON(data); err != nil {
		return nil, nil, strict
	}
	return content, repeatedFields(data), nil
}

// decode decodes JSON as kubelet does: field names are case-sensitive. An unknown field has no effect; problems are
// these.
func decode(content []byte, into *KubeletConfiguration) (problems []Given, err error) {
	unknown, err := json.UnmarshalStrict(content, into)
	if err != nil {
		return nil, err
	}
	for _, err := range unknown {
		// There are no other errors: the names in JSON of toJSON are unique.
		if field, ok := errors.AsType[json.FieldError](err); ok {
			problems = append(problems, Given{Name: field.FieldPath(), Less: Unknown})
		}
	}
	return problems, nil
}

// repeatedFields returns the fields of YAML that are given more than once.
func repeatedFields(data []byte) (out []Given) {
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case goyaml.MapSlice:
			seen := map[any]int{}
			for _, item := range v {
				field := strings.TrimPrefix(fmt.Sprintf("%s.%v", path, item.Key), ".")
				key := fmt.Sprint(item.Key) // the key itself may be a map
				if seen[key]++; seen[key] == 2 {
					out = append(out, Given{Name: field, Less: Repeated})
				}
				walk(field, item.Value)
			}
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), item)
			}
		}
	}
	var content goyaml.MapSlice
	if err := goyaml.Unmarshal(data, &content); err == nil {
		walk("", content)
	}
	return out
}

// timeOrDuration is a duration as text, or a number of nanoseconds.
type timeOrDuration struct{ metav1.Duration }

func (d *timeOrDuration) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return d.Duration.UnmarshalJSON(b)
	}
	_, err := json.UnmarshalStrict(b, &d.Duration.Duration)
	return err
}

// implemented are the fields of a KubeletConfiguration that have an effect here. A name
// stands for all fields below it.
const implemented = `apiVersion kind staticPodPath staticPodURL staticPodURLHeader httpCheckFrequency
	containerRuntimeEndpoint imageServiceEndpoint podLogsDir address port readOnlyPort
	tlsCertFile tlsPrivateKeyFile tlsMinVersion tlsCipherSuites tlsCurvePreferences authentication authorization enableDebuggingHandlers
	enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler enableContentionProfiling streamingConnectionIdleTimeout
	shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority
	healthzPort healthzBindAddress enableServer fileCheckFrequency syncFrequency runtimeRequestTimeout maxPods podsPerCore clusterDNS
	clusterDomain resolvConf serializeImagePulls maxParallelImagePulls registryPullQPS registryBurst crashLoopBackOff
	systemReserved kubeReserved reservedSystemCPUs localStorageCapacityIsolation runOnce podPidsLimit podCIDR
	imageGCHighThresholdPercent imageGCLowThresholdPercent imageMinimumGCAge imageMaximumGCAge
	seccompDefault cpuCFSQuota cpuCFSQuotaPeriod singleProcessOOMKill allowedUnsafeSysctls defaultPodSysctls protectKernelDefaults failSwapOn memorySwap failCgroupV1 oomScoreAdj maxOpenFiles
	userNamespaces.idsPerPod tracing ` + verificationFields + ` ` + logFields + ` ` + loggingFields + ` ` + evictionFields + ` ` + topologyFields + ` ` + memoryFields + ` ` + cgroupFields + ` ` + clusterFields

// notImplemented returns the dotted paths of the fields that have no effect, sorted.
func notImplemented(prefix string, fields map[string]any) []string {
	known := strings.Fields(implemented)
	var out []string
	for name, value := range fields {
		path := prefix + name
		gate, isGate := strings.CutPrefix(path, gatesField)
		if g, _ := findGate(gate); slices.Contains(known, path) || isGate && (g.here == "obeyed" || g.here == "part") {
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

// withoutZeros returns the fields that request something: kubeadm writes many that are false, 0, a
// duration of 0, or empty.
func withoutZeros(fields map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			if v = withoutZeros(v); len(v) > 0 {
				out[name] = v
			}
		case string:
			if d, err := time.ParseDuration(v); v != "" && (err != nil || d != 0) {
				out[name] = v
			}
		case []any:
			if len(v) > 0 {
				out[name] = v
			}
		case nil:
		default:
			if v != false && v != 0.0 && v != int64(0) {
				out[name] = v
			}
		}
	}
	return out
}
