package records

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// FuzzRecord asserts that a record that is read is one that kubelet's types have, and that it stays the same when it is
// written.
func FuzzRecord(f *testing.F) {
	f.Add(
		[]byte(
			`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"` + ref + `","credentialMapping":{"a":{"kubernetesSecrets":[{"uid":"1","namespace":"a","name":"b","credentialHash":""}]}}}`))
	f.Add(
		[]byte(
			`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":null,"imageRef":"` + ref + `","credentialMapping":{"a":{"nodePodsAccessible":true},"b":{"kubernetesServiceAccounts":[{"uid":"1","namespace":"a","name":"b"}]}}}`))
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"` + image + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := decodeIntent(fileName(image), data); err == nil {
			assert.Equal(t, image, got)
		}
		r, err := decodeRecord(fileName(ref), data)
		if err != nil {
			return
		}
		var theirs kubelet.ImagePulledRecord
		require.NoError(t, decode(data, &theirs))
		theirs.APIVersion = version
		want, err := json.Marshal(theirs)
		require.NoError(t, err)
		ours, err := encodeRecord(r)
		require.NoError(t, err)
		assert.Equal(t, string(want)+"\n", string(ours))
		again, err := decodeRecord(fileName(ref), ours)
		require.NoError(t, err)
		for name, who := range again.Credentials {
			who.match([]Credential{{Secret: &Secret{}}, {ServiceAccount: &ServiceAccount{}}, {}})
			r.merge(ref, name, allowed{Secrets: []secretID{{}}, ServiceAccounts: []accountID{{}}})
		}
	})
}
