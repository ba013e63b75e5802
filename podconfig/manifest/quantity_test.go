package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// Millions of digits take minutes to parse, and so do large exponents. That they are not parsed is seen
// from the error.
func TestHugeScalars(t *testing.T) {
	digits := strings.Repeat("9", 1<<18)
	for name, test := range map[string]struct{ resources, volumes, want string }{
		"limit":      {`{limits: {cpu: "` + digits + `"}}`, "[]", "spec.containers[0].resources.limits[cpu]: Too long: may not be more than 100 bytes"},
		"fraction":   {`{requests: {memory: "0.` + digits + `Mi"}}`, "[]", "spec.containers[0].resources.requests[memory]: Too long"},
		"spaces":     {`{limits: {cpu: " ` + digits + `\\n"}}`, "[]", "Too long"},
		"exponent":   {`{limits: {cpu: 1e1000000000}}`, "[]", `spec.containers[0].resources.limits[cpu]: Invalid value: "1e1000000000": must not have an exponent of more than two digits`},
		"small":      {`{requests: {memory: "1e-1000000000"}}`, "[]", "spec.containers[0].resources.requests[memory]: Invalid value"},
		"pages":      {`{"limits": {"hugepages-1e-1000000000": 1}}`, "[]", "spec.containers[0].resources.limits[hugepages-1e-1000000000]"},
		"sizeLimit":  {`{}`, `[{name: v, emptyDir: {sizeLimit: "` + digits + `"}}]`, "spec.volumes[0].emptyDir.sizeLimit: Too long"},
		"no quotes":  {`{limits: {cpu: ` + digits + `}}`, "[]", "spec.containers[0].resources.limits[cpu]"},
		"page size":  {`{"limits": {"hugepages-` + digits + `": 1}}`, "[]", "the name of a field has 262154 bytes, more than 1024: hugepages-999"},
		"big number": {`{limits: {cpu: ` + strings.Repeat("9", 400) + `}}`, "[]", "spec.containers[0].resources.limits[cpu]"},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(
				"---\n"+`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": %s}], "volumes": %s}}`,
				test.resources, test.volumes)
			_, err := manifest.Load([]byte(text), manifest.Options{NodeName: "n"})
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 4000)
		})
	}
}

func TestLongNumbersThatAreNoQuantities(t *testing.T) {
	digits := strings.Repeat("9", 1000)
	pods,
		err := manifest.Load(
		[]byte(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, args: ["`+
			digits+`"], env: [{name: NUMBER, value: "`+digits+`"}]}]}}`),
		manifest.Options{NodeName: "n"})
	require.NoError(t, err)
	assert.Equal(t, digits, pods[0].Spec.Containers[0].Args[0])
}
