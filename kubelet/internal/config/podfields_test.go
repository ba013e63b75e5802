package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A field that a pod sets and a gate has switched off is named, and no other.
func TestIgnoredFields(t *testing.T) {
	const spec = `
resources: {limits: {cpu: "1"}}
containers:
- {name: a, livenessProbe: {grpc: {mode: TLS}}, readinessProbe: {httpGet: {protocol: HTTP2}}}
- {name: b, livenessProbe: {grpc: {mode: Plaintext}}, readinessProbe: {httpGet: {protocol: HTTP1}}}
ephemeralContainers: [{name: c, startupProbe: {httpGet: {protocol: HTTP2}}}]
volumes:
- {name: a, emptyDir: {mode: 0}}
- {name: b, emptyDir: {medium: Memory}}
- {name: c, projected: {sources: [{}, {secret: {items: [{key: k, path: p, mode: 0, user: 0}]}}]}}
`
	var pod v1.PodSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &pod))
	without := func(gate string, fields ...string) (all []string) {
		for _, f := range fields {
			all = append(all, "spec."+f+" has no effect without the feature gate "+gate)
		}
		return all
	}
	for gates, want := range map[string][]string{
		"EmptyDirVolumeMode":          without("EmptyDirVolumeMode", "volumes[0].emptyDir.mode"),
		"AtomicWriteVolumeUserFields": without("AtomicWriteVolumeUserFields", "volumes[2].projected.sources[1].secret.items[0].user"),
		"GRPCContainerProbeTLS":       without("GRPCContainerProbeTLS", "containers[0].livenessProbe.grpc.mode"),
		"H2CContainerProbe": without("H2CContainerProbe", "containers[0].readinessProbe.httpGet.protocol",
			"ephemeralContainers[0].startupProbe.httpGet.protocol"),
		"PodLevelResources": without("PodLevelResources", "resources"),
		"":                  nil,
	} {
		s := Settings{}
		s.FeatureGates = map[string]bool{}
		for line := range strings.Lines(gatedFields) {
			name := strings.Fields(line)[0]
			s.FeatureGates[name] = name != gates
		}
		assert.Equal(t, want, s.IgnoredFields()(&pod), gates)
	}
}

// The fields of the table are fields of pods.
func TestTheFieldsOfGatesExist(t *testing.T) {
	known := map[string]bool{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			add(t.Elem())
			return
		}
		for t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "k8s.io/api/") && !known[t.Name()] {
			known[t.Name()] = true
			for f := range t.Fields() {
				json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				known[t.Name()+"."+json] = true
				add(f.Type)
			}
		}
	}
	add(reflect.TypeFor[v1.PodSpec]())
	for line := range strings.Lines(gatedFields) {
		words := strings.Fields(line)
		_, ok := findGate(words[0])
		assert.True(t, ok, words[0])
		for _, field := range words[1:] {
			name, _, _ := strings.Cut(field, "=")
			assert.True(t, known[name], field)
		}
	}
}
