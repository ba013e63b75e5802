package objects_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// everyReference is the spec of a pod with all the ways to refer to an object.
const everyReference = `
  imagePullSecrets: [{name: pull}, {name: ""}]
  initContainers:
  - {name: init, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: init-map, key: a}}}]}
  containers:
  - name: main
    image: i
    envFrom: [{configMapRef: {name: map}}, {secretRef: {name: secret, optional: true}}]
    env:
    - {name: A, valueFrom: {secretKeyRef: {name: key, key: a}}}
    - {name: B, valueFrom: {secretKeyRef: {name: key, key: b}}}
    - {name: C, valueFrom: {configMapKeyRef: {name: map, key: c}}}
    - {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: E, value: e}
`

const everyVolume = `  volumes:
  - {name: s, secret: {secretName: mounted}}
  - {name: m, configMap: {name: mounted}}
  - {name: p, projected: {sources: [{secret: {name: in-projected}}, {configMap: {name: in-projected}}, {downwardAPI: {}}]}}
`

func TestReferences(t *testing.T) {
	t.Parallel()
	opts := manifest.Options{NodeName: "node", Allow: manifest.AllowedRefs{All: true}}
	pods, err := manifest.Load([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec:"+everyReference+everyVolume), opts)
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
