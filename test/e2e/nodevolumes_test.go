package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// claimWithVolume is a claim and a persistent volume that name each other; the controller manager
// binds them.
func claimWithVolume(ns, name, source string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %[1]s, name: %[2]s}
  %[3]s
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s, namespace: %[1]s}
spec: {storageClassName: "", volumeName: %[1]s-%[2]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, ns, name, source)
}

// withClaim is a pod that writes its groups, the options of its mount and its name to files of the
// volume behind a claim.
func withClaim(name, claim string) *v1.Pod {
	c := Sh("c", "id -G > /data/groups; grep ' /data ' /proc/mounts > /data/mount; echo "+name+
		" > /data/name; mv /data/name /data/file; "+Forever)
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return MakePod(name, Main(c),
		Volume("data", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}))
}

// The node reads the claims of its pods, and the volumes behind them, as the Node authorizer
// permits. A pod whose claim is not bound waits for that.
func testClaims(t *testing.T, s *nodeSuite, ns string) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"host", "local", "late"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o777))
	}
	host := func(name string) string { return fmt.Sprintf("hostPath: {path: %s/%s, type: Directory}", dir, name) }
	local := "mountOptions: [noexec]\n  " + fmt.Sprintf("local: {path: %s/local}\n  nodeAffinity: {required: "+
		"{nodeSelectorTerms: [{matchExpressions: [{key: %s, operator: In, values: [%s]}]}]}}", dir, v1.LabelHostname,
		NodeName)
	s.plane.Apply(t, claimWithVolume(ns, "host", host("host"))+"---"+claimWithVolume(ns, "local", local))
	s.plane.Kubectl(t, "annotate", "persistentvolume", ns+"-local", "pv.beta.kubernetes.io/gid=1234")
	s.plane.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: late, namespace: %s}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, ns))
	late := withClaim("late", "late")
	late.Spec.NodeName = NodeName // the scheduler does not bind it
	s.create(t, ns, withClaim("host", "host"), withClaim("local", "local"), late)
	for _, name := range []string{"host", "local"} {
		s.await(t, ns, name, Running)
		assert.Equal(t, name, strings.TrimSpace(readEventually(t, filepath.Join(dir, name, "file"))))
	}
	ofLocal, ofHost := filepath.Join(dir, "local"), filepath.Join(dir, "host")
	assert.Contains(t, strings.Fields(readEventually(t, filepath.Join(ofLocal, "groups"))), "1234")
	assert.NotContains(t, strings.Fields(readEventually(t, filepath.Join(ofHost, "groups"))), "1234")
	assert.Contains(t, readEventually(t, filepath.Join(ofLocal, "mount")), "noexec")
	assert.NotContains(t, readEventually(t, filepath.Join(ofHost, "mount")), "noexec")
	Eventually(t, eventually, "an event about the claim that is not bound", func() error {
		if out := s.plane.Kubectl(t, "get", "-n", ns, "events"); !strings.Contains(out, "FailedMount") ||
			!strings.Contains(out, "unmounted volumes=[data], unattached volumes=[], failed to process "+
				"volumes=[data]: error processing PVC "+ns+"/late: PVC is not bound") {
			return errors.New(out)
		}
		return nil
	})
	assert.Equal(t, v1.PodPending, s.await(t, ns, "late").Status.Phase)
	s.plane.Apply(t, strings.SplitN(claimWithVolume(ns, "late", host("late")), "---", 2)[0])
	begin := time.Now()
	s.plane.AwaitPod(t, ns, "late", eventually, Running)
	t.Logf("the pod runs %v after there is a volume for its claim", time.Since(begin))
	assert.Equal(t, "late", strings.TrimSpace(readEventually(t, filepath.Join(dir, "late", "file"))))
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "host", "local", "late")
	s.awaitGone(t, ns, "host", "local", "late")
	for _, name := range []string{"host", "local", "late"} {
		assert.FileExists(t, filepath.Join(dir, name, "file"), "the volume stays")
		s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-"+name, "--wait=false")
	}
}

func readEventually(t *testing.T, path string) (content string) {
	t.Helper()
	Eventually(t, eventually, path, func() error {
		data, err := os.ReadFile(path)
		content = string(data)
		return err
	})
	return content
}

// certificate returns a certificate of an authority of the name, as PEM.
func certificate(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// namesOf returns the names of the authorities in a PEM file.
func namesOf(t *testing.T, data string) (names []string) {
	t.Helper()
	for rest := []byte(data); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return names
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		names = append(names, cert.Subject.CommonName)
	}
}

// Pods see cluster trust bundles, by their name and by signer and labels, and their changes.
func testTrustBundles(t *testing.T, s *nodeSuite, ns string) {
	const signer = "e2e.kubeletkit.io/signer"
	bundles := s.plane.Client.CertificatesV1beta1().ClusterTrustBundles()
	named := &certificatesv1beta1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "named"},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: certificate(t, "one")}}
	signed := &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e.kubeletkit.io:signer:live", Labels: map[string]string{"live": "true"}},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer,
			TrustBundle: certificate(t, "signed")},
	}
	other := &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e.kubeletkit.io:signer:other"},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer,
			TrustBundle: certificate(t, "other")},
	}
	for _, bundle := range []*certificatesv1beta1.ClusterTrustBundle{named, signed, other} {
		_, err := bundles.Create(t.Context(), bundle, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	c := Sh("c", Forever)
	c.VolumeMounts = []v1.VolumeMount{{Name: "trust", MountPath: "/trust"}}
	s.create(t, ns, MakePod("trusts", Main(c),
		Volume("trust", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("named"), Path: "named.pem"}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: new(signer), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"live": "true"}}, Path: "signed.pem"}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("none"), Optional: new(true), Path: "none.pem"}},
		}}})))
	s.await(t, ns, "trusts", Running)
	read := func(file string) []string { return namesOf(t, s.Exec(t, "trusts", "c", "cat", "/trust/"+file)) }
	assert.Equal(t, []string{"one"}, read("named.pem"))
	assert.Equal(t, []string{"signed"}, read("signed.pem"))
	assert.Empty(t, read("none.pem"))

	named, err := bundles.Get(t.Context(), "named", metav1.GetOptions{})
	require.NoError(t, err)
	named.Spec.TrustBundle += certificate(t, "two")
	_, err = bundles.Update(t.Context(), named, metav1.UpdateOptions{})
	require.NoError(t, err)
	other, err = bundles.Get(t.Context(), other.Name, metav1.GetOptions{})
	require.NoError(t, err)
	other.Labels = map[string]string{"live": "true"}
	_, err = bundles.Update(t.Context(), other, metav1.UpdateOptions{})
	require.NoError(t, err)
	Eventually(t, eventually, "the changes", func() error {
		if a, b := read("named.pem"), read("signed.pem"); len(a) != 2 || len(b) != 2 {
			return fmt.Errorf("%v, %v", a, b)
		}
		return nil
	})
	assert.ElementsMatch(t, []string{"one", "two"}, read("named.pem"))
	assert.ElementsMatch(t, []string{"signed", "other"}, read("signed.pem"))
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "trusts")
	s.awaitGone(t, ns, "trusts")
}

// The token of a service account can be read by the user of the containers and the group of the pod, also by a
// sub-path, and by nobody else.
func testTokens(t *testing.T, s *nodeSuite, ns string) {
	with := func(name string, context *v1.PodSecurityContext) *v1.Pod {
		c := Sh("c", Forever)
		c.VolumeMounts = []v1.VolumeMount{{Name: "token", MountPath: "/token"},
			{Name: "token", MountPath: "/by-sub-path", SubPath: "dir/token"}}
		pod := MakePod(name, Main(c),
			Volume("token", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "e2e", Path: "dir/token", ExpirationSeconds: new(int64(600))}},
			}}}))
		pod.Spec.SecurityContext = context
		return pod
	}
	user, group := new(int64(1234)), new(int64(2345))
	pods := map[string]struct {
		context *v1.PodSecurityContext
		access  string
	}{
		"of-user":  {&v1.PodSecurityContext{RunAsUser: user, RunAsGroup: group}, "600 1234 0"},
		"of-group": {&v1.PodSecurityContext{RunAsUser: user, RunAsGroup: group, FSGroup: new(int64(3456))}, "640 1234 3456"},
	}
	for name, pod := range pods {
		s.create(t, ns, with(name, pod.context))
	}
	for name, pod := range pods {
		s.await(t, ns, name, Running)
		sh := func(script string) string { return strings.TrimSpace(s.Exec(t, name, "c", "sh", "-c", script)) }
		assert.Equal(t, "1234 2345", sh("echo $(id -u) $(id -g)"))
		for _, file := range []string{"/token/dir/token", "/by-sub-path",
			"/var/run/secrets/kubernetes.io/serviceaccount/token"} {
			assert.Equal(t, pod.access, sh("stat -L -c '%a %u %g' "+file), "%s of %s", file, name)
		}
		token := sh("cat /by-sub-path")
		assert.True(t, token != "" && token == sh("cat /token/dir/token"), "both are the same")
		review, err := s.plane.Client.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token,
				Audiences: []string{"e2e"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.True(t, review.Status.Authenticated, review.Status.Error)
		assert.Equal(t, "system:serviceaccount:"+ns+":default", review.Status.User.Username)
		assert.Equal(t, name, strings.Join(review.Status.User.Extra["authentication.kubernetes.io/pod-name"], ","))
	}
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "of-user", "of-group")
	s.awaitGone(t, ns, "of-user", "of-group")
}
