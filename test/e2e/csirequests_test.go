package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// What a driver requests for its calls, of an API server that authorizes nodes: secrets of a persistent volume and of a
// volume in the spec of a pod, the pod, and tokens of its service account for the audiences of the driver.
func TestCSIRequests(t *testing.T) {
	t.Parallel()
	Need(t)
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	const name = "secret.example.com"
	d := startCSI(t, s, name, "{attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, "+
		"Ephemeral], tokenRequests: [{audience: vault, expirationSeconds: 600}], requiresRepublish: true}",
		"-controller-capabilities=", "-volume=files=1073741824")
	ns := s.plane.Namespace(t, "csi")
	for _, secret := range []string{"stage", "publish", "inline"} {
		s.plane.Kubectl(t, "create", "-n", ns, "secret", "generic", secret, "--from-literal=password="+secretValue+secret)
	}
	s.plane.Apply(t, strings.Replace(csiVolume(ns, "files", name, "files", "ReadWriteOnce", "volumeMode: Filesystem"),
		"volumeHandle: files", fmt.Sprintf("volumeHandle: files, nodeStageSecretRef: {namespace: %[1]s, name: stage}, "+
			"nodePublishSecretRef: {namespace: %[1]s, name: publish}", ns), 1))
	files, inline := withClaim("files", "files"), withClaim("inline", "")
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name,
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "inline"}}}
	s.create(t, ns, files, inline)
	uids := map[string]string{}
	for _, pod := range []string{"files", "inline"} {
		uids[pod] = string(s.await(t, ns, pod, Running).UID)
	}

	calls, err := d.Calls(t.Context())
	require.NoError(t, err)
	published := map[string]bool{}
	for _, c := range calls {
		if stage, ok := c.Request.(*csipb.NodeStageVolumeRequest); ok {
			assert.Equal(t, map[string]string{"password": secretValue + "stage"}, stage.Secrets)
			assert.Empty(t, stage.VolumeContext)
		}
		r, ok := c.Request.(*csipb.NodePublishVolumeRequest)
		if !ok {
			continue
		}
		pod, secret, ephemeral := "files", "publish", "false"
		if r.VolumeId != "files" {
			pod, secret, ephemeral = "inline", "inline", "true"
		}
		published[pod] = true
		assert.Equal(t, map[string]string{"password": secretValue + secret}, r.Secrets)
		var tokens map[string]authenticationv1.TokenRequestStatus
		require.NoError(t, json.Unmarshal([]byte(r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens))
		delete(r.VolumeContext, "csi.storage.k8s.io/serviceAccount.tokens")
		assert.Equal(t, map[string]string{
			"csi.storage.k8s.io/pod.name": pod, "csi.storage.k8s.io/pod.namespace": ns,
			"csi.storage.k8s.io/pod.uid": uids[pod], "csi.storage.k8s.io/serviceAccount.name": "default",
			"csi.storage.k8s.io/ephemeral": ephemeral,
		}, r.VolumeContext)
		review, err := s.plane.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: tokens["vault"].Token, Audiences: []string{"vault"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.True(t, review.Status.Authenticated, "%+v", review.Status)
		assert.Equal(t, "system:serviceaccount:"+ns+":default", review.Status.User.Username)
		assert.Equal(t, authenticationv1.ExtraValue{pod}, review.Status.User.Extra["authentication.kubernetes.io/pod-name"])
	}
	assert.Equal(t, map[string]bool{"files": true, "inline": true}, published)

	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "files", "inline", "--wait=false")
	s.awaitGone(t, ns, "files", "inline")
	assert.NoError(t, s.csiLeft())
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-files", "--wait=false")
	s.noSecretsInLog(t)
	s.noSecretsInEvents(t, ns)
}
