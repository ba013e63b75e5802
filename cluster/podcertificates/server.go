package podcertificates

import (
	"context"

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

// create creates a request. It is no error if it exists: then an earlier try has created it.
func (s server) create(ctx context.Context, r *certificatesv1.PodCertificateRequest) (err error) {
	if s.IsBeta() {
		beta := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: r.ObjectMeta,
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: r.Spec.SignerName, PodName: r.Spec.PodName, PodUID: r.Spec.PodUID,
				ServiceAccountName: r.Spec.ServiceAccountName, ServiceAccountUID: r.Spec.ServiceAccountUID,
				NodeName: r.Spec.NodeName, NodeUID: r.Spec.NodeUID,
				MaxExpirationSeconds: r.Spec.MaxExpirationSeconds, StubPKCS10Request: r.Spec.StubPKCS10Request,
				UnverifiedUserAnnotations: r.Spec.UnverifiedUserAnnotations,
			}}
		_, err = s.client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).Create(ctx, beta,
			metav1.CreateOptions{})
	} else {
		_, err = s.client.CertificatesV1().PodCertificateRequests(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
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
