package resourceclaims_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/resourceclaims"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/node/dra"
)

var (
	_ dra.Claims = (*resourceclaims.Client)(nil)
	_ dra.Slices = (*resourceclaims.Client)(nil)
)

func TestClaim(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu", UID: "1"}}
	c, err := resourceclaims.New(apitest.NewClientset(claim), "node")
	require.NoError(t, err)
	got, err := c.Claim(t.Context(), "default", "gpu")
	require.NoError(t, err)
	assert.Equal(t, claim.UID, got.UID)
	_, err = c.Claim(t.Context(), "default", "other")
	assert.True(t, apierrors.IsNotFound(err))
}

func TestRemoveSlices(t *testing.T) {
	client := apitest.NewClientset()
	var selectors []string
	var answer error
	client.PrependReactor("delete-collection", "resourceslices", func(action clienttesting.Action) (bool,
		runtime.Object, error) {
		selectors = append(selectors,
			action.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields.String())
		return true, nil, answer
	})
	c, err := resourceclaims.New(client, "node")
	require.NoError(t, err)
	require.NoError(t, c.RemoveSlices(t.Context(), ""))
	require.NoError(t, c.RemoveSlices(t.Context(), "gpu.example.com"))
	assert.Equal(t, []string{"spec.nodeName=node", "spec.driver=gpu.example.com,spec.nodeName=node"}, selectors)
	answer = apierrors.NewNotFound(resourceapi.Resource("resourceslices"), "")
	assert.NoError(t, c.RemoveSlices(t.Context(), ""))
	answer = errors.New("it fails")
	assert.Error(t, c.RemoveSlices(t.Context(), ""))
	_, err = resourceclaims.New(nil, "")
	assert.Error(t, err)
}
