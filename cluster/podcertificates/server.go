package podcertificates

import (
	"context"
	"fmt"
	"sync/atomic"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// server reads and creates requests in a version of the API that the API server has.
type server struct {
	client kubernetes.Interface
	// beta means that the last list that succeeded was one of v1beta1.
	beta atomic.Bool
}

func (s *server) list(ctx context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
	stable, err := s.client.CertificatesV1().PodCertificateRequests("").List(ctx, opts)
	switch {
	case err == nil:
		s.beta.Store(false)
		return stable, nil
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	beta, err := s.client.CertificatesV1beta1().PodCertificateRequests("").List(ctx, opts)
	switch {
	case err == nil:
		s.beta.Store(true)
		return beta, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not have the API of PodCertificateRequests: %w", err)
	default:
		return nil, err
	}
}

func (s *server) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if s.beta.Load() {
		return s.client.CertificatesV1beta1().PodCertificateRequests("").Watch(ctx, opts)
	}
	return s.client.CertificatesV1().PodCertificateRequests("").Watch(ctx, opts)
}

// create creates a request. It is no error if it exists: then an earlier try has created it.
func (s *server) create(ctx context.Context, r *certificatesv1.PodCertificateRequest) (err error) {
	if s.beta.Load() {
		beta := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: r.ObjectMeta, Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: r.Spec.SignerName, PodName: r.Spec.PodName, PodUID: r.Spec.PodUID,
			ServiceAccountName: r.Spec.ServiceAccountName, ServiceAccountUID: r.Spec.ServiceAccountUID,
			NodeName: r.Spec.NodeName, NodeUID: r.Spec.NodeUID,
			MaxExpirationSeconds: r.Spec.MaxExpirationSeconds, StubPKCS10Request: r.Spec.StubPKCS10Request,
			UnverifiedUserAnnotations: r.Spec.UnverifiedUserAnnotations,
		}}
		_, err = s.client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).Create(ctx, beta, metav1.CreateOptions{})
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
		return request{types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, certificatesv1.PodCertificateRequestStatus{
			Conditions: o.Status.Conditions, CertificateChain: o.Status.CertificateChain,
			NotBefore: o.Status.NotBefore, BeginRefreshAt: o.Status.BeginRefreshAt, NotAfter: o.Status.NotAfter,
		}}, true
	default:
		return request{}, false
	}
}
