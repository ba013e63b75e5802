package listwatch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// scripted is a typed client that returns its error.
type scripted[L any] struct{ err error }

func (s *scripted[L]) List(context.Context, metav1.ListOptions) (list L, err error) {
	return list, s.err
}

func (s *scripted[L]) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, s.err
}

// The version is that of the last list that succeeded. One that fails tells nothing about it.
func TestVersions(t *testing.T) {
	t.Parallel()
	var (
		stable   scripted[*certificatesv1.ClusterTrustBundleList]
		beta     scripted[*certificatesv1beta1.ClusterTrustBundleList]
		versions = NewVersions("bundles", Of(&stable), Of(&beta))
		api      = versions.API()
		missing  = apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), "")
		away     = apierrors.NewServiceUnavailable("away")
	)
	for _, step := range []struct {
		stable, beta error
		err          string
		isBeta       bool
	}{
		{},
		{stable: missing, isBeta: true},
		{stable: away, err: "away", isBeta: true},
		{stable: missing, beta: away, err: "away", isBeta: true},
		{stable: missing, beta: missing, err: "the API server does not have the API of bundles", isBeta: true},
		{beta: missing},
		{stable: away, err: "away"},
	} {
		stable.err, beta.err = step.stable, step.beta
		list, err := api.List(t.Context(), metav1.ListOptions{})
		if step.err != "" {
			assert.ErrorContains(t, err, step.err)
		} else if assert.NoError(t, err) {
			_, isBeta := list.(*certificatesv1beta1.ClusterTrustBundleList)
			assert.Equal(t, step.isBeta, isBeta)
		}
		assert.Equal(t, step.isBeta, versions.IsBeta(), "%+v", step)
		want := step.stable
		if step.isBeta {
			want = step.beta
		}
		_, err = api.Watch(t.Context(), metav1.ListOptions{})
		assert.Equal(t, want, err)
	}
}
