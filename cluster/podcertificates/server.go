package podcertificates

import (
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
)

// server has the requests of the API server.
type server struct {
	client kubernetes.Interface
	*listwatch.Versions
}

func newServer(client kubernetes.Interface) server {
	return server{client, listwatch.NewVersions("PodCertificateRequests",
		listwatch.Of(client.CertificatesV1().PodCertificateRequests("")),
		listwatch.Of(client.CertificatesV1beta1().PodCertificateRequests("")))}
}

// create creates a request for the key. It is no error if it exists: then an earlier try has created it.
func (s server) create(ctx context.Context, r *certificatesv1.PodCertificateRequest, keyPEM []byte) (err error) {
	if s.IsBeta() {
		beta := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: r.ObjectMeta,
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: r.Spec.SignerName, PodName: r.Spec.PodName, PodUID: r.Spec.PodUID,
				ServiceAccountName: r.Spec.ServiceAccountName, ServiceAccountUID: r.Spec.ServiceAccountUID,
				NodeName: r.Spec.NodeName, NodeUID: r.Spec.NodeUID,
				MaxExpirationSeconds: r.Spec.MaxExpirationSeconds, StubPKCS10Request: r.Spec.StubPKCS10Request,
				UnverifiedUserAnnotations: r.Spec.UnverifiedUserAnnotations,
			}}
		requests := s.client.CertificatesV1beta1().PodCertificateRequests(r.Namespace)
		_, err = requests.Create(ctx, beta, metav1.CreateOptions{})
		if lacksPublicKey(err) {
			spec, signErr := &beta.Spec, error(nil)
			spec.StubPKCS10Request = nil
			spec.PKIXPublicKey, spec.ProofOfPossession, signErr = //lint:ignore SA1019 1.35 has nothing else
				proofOfPossession(keyPEM, r.Spec.PodUID)
			if signErr != nil {
				return signErr
			}
			_, err = requests.Create(ctx, beta, metav1.CreateOptions{})
		}
	} else {
		_, err = s.client.CertificatesV1().PodCertificateRequests(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// lacksPublicKey reports whether the API server has refused a request because it knows no StubPKCS10Request, as 1.35.
func lacksPublicKey(err error) bool {
	var refused apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &refused) || refused.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(refused.Status().Details.Causes,
		func(cause metav1.StatusCause) bool { return cause.Field == "spec.pkixPublicKey" })
}

// request is the part of a request that is needed.
type request struct {
	id     types.NamespacedName
	status certificatesv1.PodCertificateRequestStatus
}

func reduce(object any) (request, bool) {
	switch o := object.(type) {
	case *certificatesv1.PodCertificateRequest:
		return request{types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o.Status}, true
	case *certificatesv1beta1.PodCertificateRequest:
		return request{types.NamespacedName{Namespace: o.Namespace, Name: o.Name},
			certificatesv1.PodCertificateRequestStatus{
				Conditions: o.Status.Conditions, CertificateChain: o.Status.CertificateChain,
				NotBefore: o.Status.NotBefore, BeginRefreshAt: o.Status.BeginRefreshAt, NotAfter: o.Status.NotAfter,
			}}, true
	default:
		return request{}, false
	}
}
