package lookup_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/server/internal/lookup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string, uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
}

func deleted(p *v1.Pod) *v1.Pod { p.DeletionTimestamp = new(metav1.Now()); return p }

type desired []*v1.Pod

func (d desired) Pods() []*v1.Pod      { return d }
func (desired) Terminating() []*v1.Pod { return nil }

func (desired) TranslateUID(uid types.UID) types.UID { return uid }

// agent also has pods that are terminating, and mirror pods by the UID of their static pod.
type agent struct {
	desired
	ending  []*v1.Pod
	mirrors map[types.UID]types.UID
}

func (a agent) Terminating() []*v1.Pod { return a.ending }

func (a agent) TranslateUID(uid types.UID) types.UID {
	if static, ok := a.mirrors[uid]; ok {
		return static
	}
	return uid
}

func TestPod(t *testing.T) {
	mirror := pod("static-n1", "m1")
	mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash"}
	all := agent{
		desired: desired{
			pod("web", "u1"), mirror, pod("static-n1", "s1"),
			deleted(pod("both", "b1")), pod("both", "b2"), pod("both2", "c1"), deleted(pod("both2", "c2")),
			deleted(pod("ends", "e1")),
		},
		ending:  []*v1.Pod{pod("web", "u0"), pod("gone", "g1"), pod("gone", "g2")},
		mirrors: map[types.UID]types.UID{"m1": "s1"},
	}
	for _, tt := range []struct {
		namespace, name string
		uid, want       types.UID
	}{
		{"ns", "web", "", "u1"},
		{"ns", "web", "u1", "u1"},
		{"ns", "web", "u0", "u0"}, // the predecessor, which is terminating
		{"ns", "web", "u2", ""},
		{"other", "web", "", ""},
		{"other", "web", "u1", ""},
		{"ns", "static-n1", "", "s1"},
		{"ns", "static-n1", "s1", "s1"},
		{"ns", "static-n1", "m1", "s1"},
		{"ns", "web", "m1", ""},
		{"ns", "both", "", "b2"},
		{"ns", "both", "b1", "b1"},
		{"ns", "both2", "", "c1"},
		{"ns", "ends", "", "e1"},
		{"ns", "gone", "", "g2"},
		{"ns", "gone", "g1", "g1"},
	} {
		var got types.UID
		if p := lookup.Pod(all, tt.namespace, tt.name, tt.uid); p != nil {
			got = p.UID
		}
		assert.Equal(t, tt.want, got, "%+v", tt)
	}
	assert.Nil(t, lookup.Pod(all.desired, "ns", "gone", ""), "an agent without terminating and mirror pods")
}

func TestRequest(t *testing.T) {
	p := pod("web", "u1")
	p.Spec = v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "c"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}
	var found *v1.Pod
	var container *v1.Container
	mux := http.NewServeMux()
	for _, pattern := range []string{"/x/{namespace}/{pod}/{container}", "/x/{namespace}/{pod}/{uid}/{container}"} {
		mux.HandleFunc(pattern,
			func(_ http.ResponseWriter, req *http.Request) { found, container = lookup.Request(desired{p}, req) })
	}
	for path, want := range map[string]string{"/x/ns/web/i": "i", "/x/ns/web/c": "c", "/x/ns/web/u1/e": "e",
		"/x/ns/web/other": "", "/x/ns/web/u2/c": "", "/x/ns/other/c": ""} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, path != "/x/ns/web/u2/c" && path != "/x/ns/other/c", found != nil, path)
		assert.Equal(t, want != "", container != nil, path)
		if container != nil {
			assert.Equal(t, want, container.Name)
		}
	}
}
