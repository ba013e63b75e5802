package trustbundles_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/trustbundles"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

var _ volume.TrustBundleSource = (*trustbundles.Bundles)(nil)

// certificates returns certificates, whose content does not matter, in PEM format.
func certificates(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, "# %s\n", name)
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"of": name},
			Bytes: []byte(name)})
	}
	return out.String()
}

// namesIn returns what certificates has made certificates of, in their order.
func namesIn(t *testing.T, data []byte) (names []string) {
	t.Helper()
	for len(data) > 0 {
		block, rest := pem.Decode(data)
		require.NotNil(t, block, "%s", data)
		assert.Equal(t, "CERTIFICATE", block.Type)
		assert.Empty(t, block.Headers)
		assert.True(t, strings.HasPrefix(string(data), "-----BEGIN"), "no comments")
		names, data = append(names, string(block.Bytes)), rest
	}
	return names
}

func bundle(name, signer, label string, of ...string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": label}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: certificates(of...)},
	}
}

func run(t *testing.T, client *apitest.Clientset, test func(t *testing.T, b *trustbundles.Bundles,
	changes func() int)) {
	synctest.Test(t, func(t *testing.T) {
		var changed atomic.Int64
		b, err := trustbundles.New(client, trustbundles.Options{Changed: func() { changed.Add(1) }})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		test(t, b, func() int {
			synctest.Wait()
			return int(changed.Load())
		})
		cancel()
		require.NoError(t, <-done)
	})
}

var pod = testpod.New("web", testpod.UID("u1"))

func TestTrustBundle(t *testing.T) {
	t.Parallel()
	client := apitest.NewClientset(
		bundle("plain", "", "", "a", "b", "a"), bundle("example.com:s:live", "example.com/s", "live", "b", "c"),
		bundle("example.com:s:test", "example.com/s", "test", "c", "d"),
		bundle("example.com:other:x", "example.com/other", "live", "e"),
	)
	all, live := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"env": "live"}}
	signer := func(name string, s *metav1.LabelSelector) *v1.ClusterTrustBundleProjection {
		return &v1.ClusterTrustBundleProjection{SignerName: &name, LabelSelector: s}
	}
	run(t, client, func(t *testing.T, b *trustbundles.Bundles, changes func() int) {
		synctest.Wait()
		assert.Empty(t, client.Actions(), "no pod needs one")
		for name, tc := range map[string]struct {
			request *v1.ClusterTrustBundleProjection
			want    []string
			err     string
		}{
			"by name":           {request: &v1.ClusterTrustBundleProjection{Name: ptr.To("plain")}, want: []string{"a", "b"}},
			"by signer":         {request: signer("example.com/s", all), want: []string{"b", "c", "d"}},
			"by label":          {request: signer("example.com/s", live), want: []string{"b", "c"}},
			"without selector":  {request: signer("example.com/s", nil), err: "combination of signerName and labelSelector matched zero ClusterTrustBundles"},
			"missing":           {request: &v1.ClusterTrustBundleProjection{Name: ptr.To("x")}, err: `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "x" not found`},
			"missing, optional": {request: &v1.ClusterTrustBundleProjection{Name: ptr.To("x"), Optional: ptr.To(true)}},
		} {
			got, err := b.TrustBundle(t.Context(), pod, tc.request)
			if tc.err != "" {
				assert.EqualError(t, err, tc.err, name)
				continue
			}
			require.NoError(t, err, name)
			assert.NotNil(t, got)
			assert.ElementsMatch(t, tc.want, namesIn(t, got), name)
		}
		before := changes()
		_, err := client.CertificatesV1().ClusterTrustBundles().Update(t.Context(), bundle("plain", "", "", "z"),
			metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Greater(t, changes(), before)
		got, err := b.TrustBundle(t.Context(), pod, &v1.ClusterTrustBundleProjection{Name: ptr.To("plain")})
		require.NoError(t, err)
		assert.Equal(t, []string{"z"}, namesIn(t, got))
	})
}

// The order of certificates is the same each time for a pod, and differs between pods.
func TestOrder(t *testing.T) {
	t.Parallel()
	client := apitest.NewClientset(bundle("many", "", "", strings.Split("abcdefghijklmnop", "")...))
	run(t, client, func(t *testing.T, b *trustbundles.Bundles, _ func() int) {
		orders := map[string]bool{}
		for i := range 5 {
			p := testpod.New("web", testpod.UID(types.UID(fmt.Sprint(i))))
			var texts []string
			for range 2 {
				got, err := b.TrustBundle(t.Context(), p, &v1.ClusterTrustBundleProjection{Name: ptr.To("many")})
				require.NoError(t, err)
				texts = append(texts, strings.Join(namesIn(t, got), ""))
			}
			assert.Equal(t, texts[0], texts[1])
			orders[texts[0]] = true
		}
		assert.Greater(t, len(orders), 1)
	})
}

// A server without v1 is asked for v1beta1; one without both fails the volume, also an optional one.
func TestVersionsOfTheAPI(t *testing.T) {
	t.Parallel()
	gone := func(a clienttesting.Action) error {
		return apierrors.NewGenericServerResponse(404, a.GetVerb(), a.GetResource().GroupResource(), "", "", 0, true)
	}
	refuse := func(client *apitest.Clientset, version string) {
		client.PrependReactor("list", "clustertrustbundles", func(a clienttesting.Action) (bool, kruntime.Object,
			error) {
			return a.GetResource().Version == version, nil, gone(a)
		})
		client.PrependWatchReactor("clustertrustbundles", func(a clienttesting.Action) (bool, watch.Interface, error) {
			return a.GetResource().Version == version, nil, gone(a)
		})
	}
	client := apitest.NewClientset(&certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{
			TrustBundle: certificates("a")},
	})
	refuse(client, "v1")
	request := &v1.ClusterTrustBundleProjection{Name: ptr.To("plain"), Optional: ptr.To(true)}
	run(t, client, func(t *testing.T, b *trustbundles.Bundles, changes func() int) {
		got, err := b.TrustBundle(t.Context(), pod, request)
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, namesIn(t, got))
		before := changes()
		_, err = client.CertificatesV1beta1().ClusterTrustBundles().Update(t.Context(),
			&certificatesv1beta1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{
					TrustBundle: certificates("b")},
			}, metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Greater(t, changes(), before, "the watch is one of v1beta1")
	})
	refuse(client, "v1beta1")
	run(t, client, func(t *testing.T, b *trustbundles.Bundles, _ func() int) {
		_, err := b.TrustBundle(t.Context(), pod, request)
		require.ErrorIs(t, err, trustbundles.ErrNotRead)
		require.ErrorContains(t, err, "the API server does not have the API of ClusterTrustBundles")
	})
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	client := apitest.NewClientset()
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	run(t, client, func(t *testing.T, b *trustbundles.Bundles, _ func() int) {
		_, err := b.TrustBundle(t.Context(), pod, &v1.ClusterTrustBundleProjection{Name: ptr.To("x"),
			Optional: ptr.To(true)})
		require.ErrorIs(t, err, trustbundles.ErrNotRead)
		require.ErrorContains(t, err, "connection refused")
	})
	_, err := trustbundles.New(nil, trustbundles.Options{})
	require.Error(t, err)
}

func TestUses(t *testing.T) {
	t.Parallel()
	source := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}
	trust := v1.Volume{Name: "trust",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{}, source}}}}
	assert.True(t, trustbundles.Uses(testpod.New("web", testpod.Containers("main"), testpod.Volumes(trust))))
	assert.False(t, trustbundles.Uses(testpod.New("web", testpod.Containers("main"), testpod.UnusedVolumes(trust))))
	assert.False(t, trustbundles.Uses(pod))
}
