package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

const signerName = "example.com/e2e"

// signer answers the requests for certificates of pods until the test ends. It denies those with
// the annotation example.com/deny.
type signer struct {
	plane *ControlPlane
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
}

func newSigner(t *testing.T, plane *ControlPlane) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &signer{plane, cert, key}
}

func (s *signer) run(ctx context.Context, t *testing.T) {
	requests := s.plane.Client.CertificatesV1beta1().PodCertificateRequests("")
	for ctx.Err() == nil {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				if r := &list.Items[i]; r.Spec.SignerName == signerName && len(r.Status.Conditions) == 0 {
					if err := s.answer(ctx, r); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *signer) answer(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) error {
	condition := metav1.Condition{Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Reason: "Signed",
		Message: "as requested"}
	if _, deny := r.Spec.UnverifiedUserAnnotations["example.com/deny"]; deny {
		condition = metav1.Condition{Type: certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
			Reason: "Policy", Message: "not for you"}
	} else if err := s.sign(r); err != nil {
		return err
	}
	condition.Status, condition.LastTransitionTime = metav1.ConditionTrue, metav1.Now()
	r.Status.Conditions = []metav1.Condition{condition}
	_, err := s.plane.Client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, r,
		metav1.UpdateOptions{})
	return err
}

func (s *signer) sign(r *certificatesv1beta1.PodCertificateRequest) error {
	var public any
	var err error
	//lint:ignore SA1019 Kubernetes 1.35 has nothing else
	if key := r.Spec.PKIXPublicKey; len(key) > 0 {
		public, err = x509.ParsePKIXPublicKey(key)
	} else {
		var csr *x509.CertificateRequest
		if csr, err = x509.ParseCertificateRequest(r.Spec.StubPKCS10Request); err == nil {
			public = csr.PublicKey
		}
	}
	if err != nil {
		return err
	}
	begin := time.Now().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: begin, NotAfter: begin.Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		Subject:     pkix.Name{CommonName: fmt.Sprintf("%s/%s on %s", r.Namespace, r.Spec.PodName, r.Spec.NodeName)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, public, s.key)
	if err != nil {
		return err
	}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: begin.Add(d)} }
	r.Status.CertificateChain = "# the leaf\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	r.Status.NotBefore, r.Status.BeginRefreshAt, r.Status.NotAfter = at(0), at(30*time.Minute), at(time.Hour)
	return nil
}

// certificatePod is a pod with a certificate at /tls/bundle.pem.
func certificatePod(name string, annotations map[string]string) *v1.Pod {
	c := Sh("main", Forever)
	c.VolumeMounts = []v1.VolumeMount{{Name: "tls", MountPath: "/tls"}}
	return MakePod(name, Grace(1), Main(c),
		Volume("tls", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
			PodCertificate: &v1.PodCertificateProjection{
				SignerName: signerName, KeyType: "ECDSAP256", MaxExpirationSeconds: ptr(int32(3600)),
				CredentialBundlePath: "bundle.pem", UserAnnotations: annotations,
			},
		}}}}))
}

// TestPodCertificates has a real API server with the API of PodCertificateRequests, by the rules of
// the Node authorizer and NodeRestriction, and a signer.
func TestPodCertificates(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	plane := NewControlPlaneWith(t, c.Net, map[string][]string{"kube-apiserver": {
		"--feature-gates=PodCertificateRequest=true",
		"--runtime-config=certificates.k8s.io/v1beta1/podcertificaterequests=true",
	}})
	c.Preload(t, "pause:1", "busybox:1")
	s := &nodeSuite{Cluster: c, plane: plane,
		agent: c.NewAgent(t, AgentOptions{Kubeconfig: plane.NodeKubeconfig(t, NodeName)})}
	s.start(t)
	namespace := plane.Namespace(t, "certificates")

	s.create(t, namespace, certificatePod("web", nil),
		certificatePod("denied", map[string]string{"example.com/deny": "1"}))
	await := func(pod string, texts ...string) {
		t.Helper()
		Eventually(t, within, "events of "+pod, func() error {
			list, err := plane.Client.CoreV1().Events(namespace).List(t.Context(),
				metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
			if err != nil {
				return err
			}
			var all strings.Builder
			for i := range list.Items {
				all.WriteString(list.Items[i].Reason + ": " + list.Items[i].Message + "\n")
			}
			for _, text := range texts {
				if !strings.Contains(all.String(), text) {
					return fmt.Errorf("no %q in\n%s", text, all.String())
				}
			}
			return nil
		})
	}
	await("web", `FailedMount: MountVolume.SetUp failed for volume "tls" : credential bundle is not issued yet`)

	signs := newSigner(t, plane)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		signs.run(ctx, t)
	}()
	t.Cleanup(func() { cancel(); <-done })
	running := plane.AwaitPod(t, namespace, "web", within, Running)
	await("denied",
		`FailedMount: MountVolume.SetUp failed for volume "tls" : PodCertificateRequest was permanently denied: reason="Policy" message="not for you"`,
		"Denied: PodCertificateRequest "+namespace+"/req-", `was denied, reason="Policy", message="not for you"`)
	plane.AwaitPod(t, namespace, "denied", within, func(pod *v1.Pod) error {
		if w := Status(pod, "main").State.Waiting; w == nil || w.Reason != "ContainerCreating" {
			return fmt.Errorf("state %+v", Status(pod, "main").State)
		}
		return nil
	})

	full := running.Name
	bundle := func() (text string, leaf *x509.Certificate) {
		t.Helper()
		text = c.Exec(t, full, "main", "cat", "/tls/bundle.pem")
		assert.True(t, strings.HasPrefix(text, "-----BEGIN PRIVATE KEY-----"))
		assert.NotContains(t, text, "#")
		pair, err := tls.X509KeyPair([]byte(text), []byte(text))
		require.NoError(t, err, "the key belongs to the certificate")
		roots := x509.NewCertPool()
		roots.AddCert(signs.cert)
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		require.NoError(t, err)
		return text, pair.Leaf
	}
	first, leaf := bundle()
	assert.Equal(t, namespace+"/web on "+NodeName, leaf.Subject.CommonName)
	assert.Contains(t, c.Exec(t, full, "main", "mount"), " on /tls type tmpfs (ro")

	// The key is in memory: a new agent makes another one, for the same container.
	s.agent.Kill(t)
	s.agent.Start(t)
	Eventually(t, within, "another certificate", func() error {
		if c.Exec(t, full, "main", "cat", "/tls/bundle.pem") == first {
			return fmt.Errorf("the certificate of the first agent")
		}
		return nil
	})
	bundle()
	again := plane.AwaitPod(t, namespace, "web", within, Running)
	assert.Equal(t, Status(running, "main").ContainerID, Status(again, "main").ContainerID)
	plane.Kubectl(t, "delete", "pod", "--all", "-n", namespace, "--timeout=180s")
}
