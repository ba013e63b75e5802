package podcertificates

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// A projection is not requested again if it was answered, or its pod has ended, while it waited for
// its turn.
func TestNotDueAnyMore(t *testing.T) {
	t.Parallel()
	web := testpod.New("web", testpod.UID("u1"), func(pod *v1.Pod) { pod.Spec.ServiceAccountName = "robot" })
	client := apitest.NewClientset(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot",
		Namespace: web.Namespace}})
	c, err := New(client, "node-1", Options{NodeUID: func() types.UID { return "node-uid" }})
	require.NoError(t, err)
	api := client.CertificatesV1().PodCertificateRequests(web.Namespace)
	requests := func() []certificatesv1.PodCertificateRequest {
		list, err := api.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	p, err := c.projection(key{web.UID, "v", 0}, web, &v1.PodCertificateProjection{KeyType: "ED25519"})
	require.NoError(t, err)
	c.request(t.Context(), p)
	require.Len(t, requests(), 1)

	r := &requests()[0]
	now := time.Now()
	r.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued,
			Status: metav1.ConditionTrue}},
		BeginRefreshAt: &metav1.Time{Time: now.Add(time.Hour)}, NotAfter: &metav1.Time{Time: now.Add(2 * time.Hour)},
	}
	require.NoError(t, (*store)(c).Update(r))
	c.request(t.Context(), p)
	assert.Len(t, requests(), 1, "it was answered")

	other, err := c.projection(key{web.UID, "w", 0}, web, p.spec)
	require.NoError(t, err)
	c.Update(nil, []*v1.Pod{web})
	c.request(t.Context(), other)
	assert.Len(t, requests(), 1, "the pod is gone")
}
