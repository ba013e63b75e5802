package cluster

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// projected creates a pod with a projected volume, and returns the path of a file in it and a
// function that deletes the pod.
func (r *rig) projected(file string, source v1.VolumeProjection) (path string, remove func()) {
	pod := bound("web")
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.Volumes = []v1.Volume{{Name: "v",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{source}}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	pod = r.api.Create(pod)
	return filepath.Join(r.root, "pods", string(pod.UID), "volumes/kubernetes.io~projected/v", file), func() {
		r.api.Delete("default", "web", nil) // else the volume stays mounted
		r.after(5 * time.Minute)
	}
}

// has requires the content of a file.
func (r *rig) has(path, want string) {
	r.Helper()
	data, err := os.ReadFile(path)
	require.NoError(r, err)
	assert.Equal(r, want, string(data))
}

// A token is refreshed when it is due, and is in the pod's file at once: nothing else has the pod
// synced then.
func TestARefreshedTokenIsInTheFile(t *testing.T) {
	onNode(t, func(r *rig) {
		var issued atomic.Int64
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Resource != "serviceaccounts" {
				return nil, nil
			}
			return apitest.Response(&authenticationv1.TokenRequest{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
				Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
				Status: authenticationv1.TokenRequestStatus{
					Token: fmt.Sprint("token ",
						issued.Add(1)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
				},
			}, nil), nil
		})
		file, remove := r.projected("token",
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}})
		begin := time.Now()
		r.after(10 * time.Second)
		r.has(file, "token 1")
		time.Sleep(time.Until(begin.Add(47*time.Minute + 45*time.Second)))
		r.has(file, "token 1")
		for issued.Load() == 1 && time.Since(begin) < time.Hour {
			r.after(100 * time.Millisecond)
		}
		assert.InDelta(t, 48*time.Minute, time.Since(begin), float64(15*time.Second), "80 % of an hour")
		r.after(time.Second)
		r.has(file, "token 2")
		assert.Equal(t, int64(2), issued.Load())
		remove()
	})
}

// A changed trust bundle is in the files of the pods that use it.
func TestAChangedTrustBundleIsInTheFile(t *testing.T) {
	onNode(t, func(r *rig) {
		certificate := func(i int) string {
			return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: []byte(fmt.Sprint("authority ", i))}))
		}
		put := func(i int) {
			r.api.Put("clustertrustbundles", &certificatesv1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certificatesv1.ClusterTrustBundleSpec{
					TrustBundle: certificate(i)},
			})
		}
		put(0)
		file, remove := r.projected("ca.pem",
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("ca"),
				Path: "ca.pem"}})
		r.after(time.Minute)
		r.has(file, certificate(0))
		for i := 1; i <= 3; i++ {
			put(i)
			r.after(time.Second)
			r.has(file, certificate(i))
			r.after(time.Duration(i) * time.Minute)
		}
		requests := strings.Join(r.api.Requests(), "\n")
		assert.LessOrEqual(t, strings.Count(requests, "clustertrustbundles"), 1, "changes are watched: %s", requests)
		remove()
	})
}
