package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

type attached struct{ volume.HostPath }

func (attached) Name() string { return "example.com/attached" }

// The default volume plugins use no volume that a controller attaches, so the node leaves none to it, unless a kubelet
// did and has some. Pods with such volumes say why they wait.
func TestVolumesThatAControllerAttaches(t *testing.T) {
	onNode(t, func(r *rig) {
		const annotation = "volumes.kubernetes.io/controller-managed-attach-detach"
		object := func() *v1.Node { return r.api.Object("nodes", "", "node").(*v1.Node) }
		r.after(time.Minute)
		assert.NotContains(r, object().Annotations, annotation)

		r.api.Put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef: &v1.ObjectReference{UID: "uid-claim"},
				PersistentVolumeSource: v1.PersistentVolumeSource{
					CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "1"}},
			}})
		r.api.Put("persistentvolumeclaims", &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "uid-claim"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		})
		var (
			mu     sync.Mutex
			events []runtime.Event
		)
		r.stop()
		r.change = func(_ *Config, o *kubeletkit.Options) {
			o.Observe.Event = func(e runtime.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Pod.Name != "" { // else it is about the node
					events = append(events, e)
				}
			}
		}
		r.start()
		for name, source := range map[string]v1.VolumeSource{
			"claim":  {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
			"inline": {CSI: &v1.CSIVolumeSource{Driver: "csi.example.com"}},
		} {
			pod := bound(name)
			pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: source}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			r.api.Create(pod)
		}
		r.after(time.Minute)
		for _, name := range []string{"claim", "inline"} {
			waiting := r.api.Get("default", name).Status.ContainerStatuses[0].State.Waiting
			require.NotNil(r, waiting)
			assert.Equal(r, "ContainerCreating", waiting.Reason)
			assert.Contains(r, waiting.Message, "volume type not supported", name)
			assert.Contains(r, waiting.Message, "csi", name)
		}
		told := map[string]bool{}
		mu.Lock()
		for _, e := range events {
			told[e.Pod.Name] = told[e.Pod.Name] || e.Reason == "FailedMount"
		}
		mu.Unlock()
		assert.Equal(r, map[string]bool{"claim": true, "inline": true}, told)

		// The node of a kubelet, which has an attached volume.
		adopted := func(attached []v1.AttachedVolume, plugins []volume.Plugin) *v1.Node {
			r.stop()
			node := object()
			node.Annotations = map[string]string{annotation: "true"}
			node.Status.VolumesAttached = attached
			r.api.Put("nodes", node)
			r.change = func(_ *Config, o *kubeletkit.Options) { o.Volumes.Plugins = plugins }
			r.start()
			r.after(time.Minute)
			return object()
		}
		assert.Contains(r, adopted([]v1.AttachedVolume{{Name: "v"}}, nil).Annotations, annotation)
		assert.NotContains(r, adopted(nil, nil).Annotations, annotation)
		assert.Contains(r, adopted(nil, []volume.Plugin{attached{}}).Annotations, annotation)
	})
}
