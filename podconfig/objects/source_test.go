package objects_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	opts := manifest.Options{NodeName: "node", Allow: manifest.AllowedRefs{All: true}}
	pods, err := manifest.Load([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec:"+testpod.EveryReference+testpod.EveryVolume), opts)
	require.NoError(t, err)
	var got []string
	for _, ref := range objects.References(pods[0]) {
		got = append(got, ref.String())
	}
	assert.ElementsMatch(t, []string{
		"secret shop/pull", "configmap shop/init-map", "configmap shop/map", "secret shop/secret", "secret shop/key",
		"secret shop/mounted", "configmap shop/mounted", "secret shop/in-projected", "configmap shop/in-projected",
	}, got)
	assert.Empty(t, objects.References(&v1.Pod{}))
}
