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
	pods, err := manifest.Load([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec:"+
		testpod.EveryReference+testpod.EveryVolume), opts)
	require.NoError(t, err)
	references := func(pod *v1.Pod) (list []string) {
		for _, ref := range objects.References(pod) {
			list = append(list, ref.String())
		}
		return list
	}
	unmounted := []string{"secret shop/pull", "configmap shop/init-map", "configmap shop/map", "secret shop/secret",
		"secret shop/key"}
	assert.ElementsMatch(t, unmounted, references(pods[0]), "no container uses the volumes")
	mounting := testpod.With(pods[0], func(pod *v1.Pod) {
		for i := range pod.Spec.Volumes {
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: pod.Spec.Volumes[i].Name})
		}
	})
	assert.ElementsMatch(t, append(unmounted,
		"secret shop/mounted", "configmap shop/mounted", "secret shop/in-projected", "configmap shop/in-projected",
	), references(mounting))
	assert.Empty(t, objects.References(&v1.Pod{}))
}
