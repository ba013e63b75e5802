package manifest

import "testing"

const commonManifest = minimal + `    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1, memory: 1Gi}}
    livenessProbe: {httpGet: {port: 80}}
    env: [{name: A, value: b}, {name: C, value: d}]
    volumeMounts: [{name: e, mountPath: /e}]
  volumes: [{name: e, emptyDir: {}}]
`

// BenchmarkLoad reads a manifest of common size.
func BenchmarkLoad(b *testing.B) {
	data := []byte(commonManifest)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(data, loadOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
