package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// The time to load a manifest is proportional to its size: 40,000 variables that refer to
// 40,000 volumes took half a minute, in which no other manifest was read.
func TestManyReferencesToVolumes(t *testing.T) {
	var volumes, env, mounts []string
	for i := range 40_000 {
		volumes = append(volumes, fmt.Sprintf(`{"name": "v%d", "emptyDir": {}}`, i))
		mounts = append(mounts, fmt.Sprintf(`{"name": "v%d", "mountPath": "/v%[1]d"}`, i))
		env = append(env, fmt.Sprintf(`{"name": "V%d", "valueFrom": {"fileKeyRef": {"volumeName": "v%[1]d", "path": "p", "key": "K"}}}`, i))
	}
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "env": [%s], "volumeMounts": [%s]}], "volumes": [%s]}}`,
		strings.Join(env, ","), strings.Join(mounts, ","), strings.Join(volumes, ","))
	began := time.Now()
	_, err := manifest.Load([]byte(text), manifest.Options{NodeName: "n"})
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 90*time.Second, "a quadratic cost takes minutes with the race detector")
}
