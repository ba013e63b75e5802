package config

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// gatedFields has the fields of pods that have no effect while a feature gate is off, for each gate, as Type.field. Of
// a field with a value, other values are the default.
const gatedFields = emptyDirModeGate + ` EmptyDirVolumeSource.mode
` + fileOwnersGate + ` ConfigMapVolumeSource.defaultUser DownwardAPIVolumeSource.defaultUser SecretVolumeSource.defaultUser ` +
	`ProjectedVolumeSource.defaultUser KeyToPath.user DownwardAPIVolumeFile.user ServiceAccountTokenProjection.user ` +
	`ClusterTrustBundleProjection.user PodCertificateProjection.user
` + grpcTLSGate + ` GRPCAction.mode=TLS
` + h2cGate + ` HTTPGetAction.protocol=HTTP2
` + podLevelGate + ` PodSpec.resources`

// IgnoredFields returns a function that returns a sentence for each field of a spec that has no effect because of a
// feature gate. A kubelet ignores these fields, too.
func (s *Settings) IgnoredFields() func(spec *v1.PodSpec) []string {
	off := map[string]string{} // fields, to their gates
	for line := range strings.Lines(gatedFields) {
		words := strings.Fields(line)
		for _, field := range words[1:] {
			if !s.gateOn(words[0]) {
				off[field] = words[0]
			}
		}
	}
	return func(spec *v1.PodSpec) []string { return ignoredFields("spec", reflect.ValueOf(*spec), off) }
}

// ignoredFields adds the fields of a value, which is at the path.
func ignoredFields(path string, v reflect.Value, off map[string]string) (all []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return ignoredFields(path, v.Elem(), off)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, ignoredFields(fmt.Sprintf("%s[%d]", path, i), v.Index(i), off)...)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[v1.PodSpec]().PkgPath() {
			return nil
		}
		for f, value := range v.Fields() {
			below, name := path, strings.TrimSuffix(f.Tag.Get("json"), ",omitempty")
			if value.IsZero() {
				continue
			}
			if !f.Anonymous {
				below += "." + name
			}
			name = v.Type().Name() + "." + name
			gate := off[name]
			if gate == "" && value.Kind() == reflect.Pointer && value.Elem().Kind() == reflect.String {
				gate = off[name+"="+value.Elem().String()]
			}
			if gate != "" {
				all = append(all, fmt.Sprintf("%s has no effect without the feature gate %s", below, gate))
				continue
			}
			all = append(all, ignoredFields(below, value, off)...)
		}
	}
	return all
}
