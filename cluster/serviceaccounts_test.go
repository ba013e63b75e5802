package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/node/images/credentials"
)

// Plugins get service accounts and tokens of the API server, and without a pull there is no request.
func TestServiceAccounts(t *testing.T) {
	onNode(t, func(r *rig) {
		var accounts credentials.ServiceAccounts = r.node.ServiceAccounts()
		_, err := accounts.ServiceAccount(r.Context(), "default", "puller")
		require.True(t, apierrors.IsNotFound(err), err)
		r.api.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "puller", UID: "1", Annotations: map[string]string{"example.com/role": "reader"}}})
		got, err := accounts.ServiceAccount(r.Context(), "default", "puller")
		require.NoError(t, err)
		assert.Equal(t, "reader", got.Annotations["example.com/role"])
		token, err := accounts.Token(r.Context(), "default",
			"puller",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"registry"}}})
		require.NoError(t, err)
		assert.Equal(t, "token of default/puller", token.Status.Token)
	})
}
