package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// The time to validate a pod is proportional to its size: 40,000 variables that refer to 40,000
// volumes took half a minute, in which no other manifest was read. A reference to the last volume
// costs what one to the first volume costs.
func TestManyReferencesToVolumes(t *testing.T) {
	const many = 4_000
	var volumes, env []string
	for i := range many {
		volumes = append(volumes, fmt.Sprintf(`{"name": "v%d", "emptyDir": {}}`, i))
		env = append(env,
			fmt.Sprintf(`{"name": "V%d", "valueFrom": {"fileKeyRef": {"volumeName": "v%d", "path": "p", "key": "K"}}}`,
				i, many-1))
	}
	text := fmt.Sprintf(
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "env": [%s]}], "volumes": [%s]}}`,
		strings.Join(env, ","), strings.Join(volumes, ","))
	opts := manifest.Options{NodeName: "n"}
	pods, err := manifest.Load([]byte(text), opts)
	require.NoError(t, err)
	validate := func(volume string) time.Duration {
		for i := range pods[0].Spec.Containers[0].Env {
			pods[0].Spec.Containers[0].Env[i].ValueFrom.FileKeyRef.VolumeName = volume
		}
		return testenv.CPUTime(t, func() { require.Empty(t, manifest.Validate(pods[0], opts)) })
	}
	first, last := time.Hour, time.Hour
	for range 3 { // the least is without interruptions
		first, last = min(first, validate("v0")), min(last, validate(fmt.Sprint("v", many-1)))
	}
	assert.Less(t, last, 3*first, "with a search for the volume it takes many times as long")
}

// The claims of a pod are not looked through for each of its containers.
func TestManyClaims(t *testing.T) {
	var claims, containers []string
	for i := range 100_000 {
		claims = append(claims, fmt.Sprintf(`{"name": "r%d"}`, i))
	}
	for i := range 15_000 {
		containers = append(containers, fmt.Sprintf(`{"name": "c%d", "image": "i"}`, i))
	}
	text := fmt.Sprintf(
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [%s], "resourceClaims": [%s]}}`,
		strings.Join(containers, ","), strings.Join(claims, ","))
	took := testenv.CPUTime(t, func() {
		_, err := manifest.Load([]byte(text), manifest.Options{NodeName: "n", Allow: manifest.AllowedRefs{All: true}})
		require.NoError(t, err)
	})
	assert.Less(t, took, 60*time.Second, "the product of both takes minutes")
}
