package cluster

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// accountTimeout is the deadline of one request.
const accountTimeout = 30 * time.Second

// ServiceAccounts are the service accounts of pods, for credential provider plugins: the ServiceAccounts of package
// images/credentials. Nothing is kept or refreshed, so that a pod which pulls nothing costs nothing.
type ServiceAccounts struct{ client kubernetes.Interface }

// ServiceAccounts returns the service accounts of the API server. They may be used before Configure.
func (n *Node) ServiceAccounts() ServiceAccounts { return ServiceAccounts{n.clients.objects} }

// ServiceAccount reads the service account. A node may read those of its pods.
func (a ServiceAccounts) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	return a.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Token requests a token of the service account, which the request binds to a pod of the node.
func (a ServiceAccounts) Token(ctx context.Context, namespace, serviceAccount string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	return a.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request,
		metav1.CreateOptions{})
}
