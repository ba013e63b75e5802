package manifest_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

const commonManifest = minimal + `    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1, memory: 1Gi}}
    livenessProbe: {httpGet: {port: 80}}
    env: [{name: A, value: b}, {name: C, value: d}]
    volumeMounts: [{name: e, mountPath: /e}]
  volumes: [{name: e, emptyDir: {}}]
`

// BenchmarkLoad loads a manifest of common size.
func BenchmarkLoad(b *testing.B) {
	data := []byte(commonManifest)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manifest.Load(data, loadOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
