package cluster

import (
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A claim cannot be watched by a node, so it is read again after a back-off: soon at first, and
// every 10 to 15 s at last. If the pod changes, it is read at once.
func TestClaimsAreReadAgain(t *testing.T) {
	onNode(t, func(r *rig) {
		withClaim := func(pod, claim string) *v1.Pod {
			p := bound(pod)
			p.Spec.Volumes = []v1.Volume{{Name: "data",
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					ClaimName: claim}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			return r.api.Create(p)
		}
		put := func(claim string) {
			dir := v1.HostPathDirectoryOrCreate
			r.api.Put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
				Spec: v1.PersistentVolumeSpec{
					ClaimRef: &v1.ObjectReference{UID: types.UID("uid-" + claim)},
					PersistentVolumeSource: v1.PersistentVolumeSource{
						HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(r.root, claim), Type: &dir}},
				}})
			r.api.Put("persistentvolumeclaims", &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim, UID: types.UID("uid-" + claim)},
				Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + claim},
				Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
			})
		}
		reads := func(claim string) (n int) {
			for _, req := range r.requests() {
				if req == "get default/persistentvolumeclaims/"+claim {
					n++
				}
			}
			return n
		}
		withClaim("early", "a")
		r.after(5 * time.Second)
		assert.GreaterOrEqual(t, reads("a"), 3, "at once, after 1 to 1.5 s, and after 2 to 3 s more")
		r.after(5 * time.Minute)
		n := reads("a")
		assert.True(t, n >= 18 && n <= 33, "it is read every 10 to 15 s: %d times in 5 minutes", n)
		put("a")
		r.after(16 * time.Second)
		require.Len(t, r.rt.Running(fake.Target{Pod: "early"}), 1)

		withClaim("late", "b")
		r.after(5 * time.Minute)
		for reads("b"); reads("b") == 0; {
			r.after(time.Second)
		}
		put("b") // the next attempt is 10 to 15 s after the last one
		r.after(5 * time.Second)
		require.Empty(t, r.rt.Running(fake.Target{Pod: "late"}))
		r.api.Update("default", "late", func(p *v1.Pod) { p.Annotations = map[string]string{"changed": "yes"} })
		r.after(2 * time.Second)
		require.Len(t, r.rt.Running(fake.Target{Pod: "late"}), 1)
	})
}

// A pod with a claim and an ephemeral claim waits until both are bound, and the second one is
// its own, with a volume of the node. Each is read when it is set up, and never listed.
func TestClaims(t *testing.T) {
	onNode(t, func(r *rig) {
		system := goruntime.GOOS
		put := func(claim, pv string, owner *v1.Pod) {
			dir := v1.HostPathDirectoryOrCreate
			r.api.Put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv},
				Spec: v1.PersistentVolumeSpec{
					ClaimRef: &v1.ObjectReference{UID: types.UID("uid-" + claim)},
					NodeAffinity: &v1.VolumeNodeAffinity{
						Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
							{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelOSStable, Operator: v1.NodeSelectorOpIn, Values: []string{system}}}},
						}}},
					PersistentVolumeSource: v1.PersistentVolumeSource{
						HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(r.root, pv), Type: &dir}},
				}})
			object := &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim, UID: types.UID("uid-" + claim)},
				Spec:       v1.PersistentVolumeClaimSpec{VolumeName: pv},
				Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
			}
			if owner != nil {
				object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name,
					UID: owner.UID, Controller: ptr.To(true)}}
			}
			r.api.Put("persistentvolumeclaims", object)
		}
		pod := bound("db")
		pod.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"},
			{Name: "scratch", MountPath: "/scratch"}}
		pod = r.api.Create(pod)
		r.after(time.Minute)
		require.Empty(t, r.rt.Running(fake.Target{}), "there is no claim")
		put("data", "pv-1", nil)
		put("db-scratch", "pv-2", nil)
		r.after(5 * time.Minute)
		require.Empty(t, r.rt.Running(fake.Target{}), "a claim of that name that is not the pod's")
		system = "plan9"
		put("db-scratch", "pv-2", pod)
		r.after(5 * time.Minute)
		require.Empty(t, r.rt.Running(fake.Target{}), "a volume of another node")
		system = goruntime.GOOS
		put("db-scratch", "pv-2", pod)
		r.requests()
		r.after(5 * time.Minute)
		require.Len(t, r.rt.Running(fake.Target{}), 1)
		assert.Subset(t, r.requests(), []string{"get default/persistentvolumeclaims/db-scratch",
			"get persistentvolumes/pv-2"})

		// The container starts again while the API server is away.
		r.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout })
		r.rt.Exit(fake.Target{Pod: "db"}, 1)
		r.after(5 * time.Minute)
		assert.Len(t, r.rt.Running(fake.Target{}), 1)
	})
}
