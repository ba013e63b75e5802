package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// When the node object is deleted, or is being deleted, and the garbage collector has deleted the
// mirror pods, none is created until the agent is restarted. Before, their status is written.
func TestNoMirrorPodsOfANodeThatIsDeleted(t *testing.T) {
	for name, remove := range map[string]func(r *rig){
		"deleted": func(r *rig) { r.api.Remove("nodes", "", "node") },
		"being deleted": func(r *rig) {
			object := r.api.Object("nodes", "", "node").(*v1.Node).DeepCopy()
			object.DeletionTimestamp, object.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/held"}
			r.api.Put("nodes", object)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				static := bound("static")
				static.UID = "static"
				manifest.SetDefaults(static)
				r.static.Set(static)
				r.after(time.Minute)
				require.NotNil(r, r.api.Get("default", "static"))
				assert.Equal(r, static.UID, r.agent.TranslateUID(r.api.Get("default", "static").UID))
				remove(r)
				r.after(time.Second)
				r.api.Requests()
				r.rt.Exit(fake.Target{Pod: "static"}, 1)
				r.after(10 * time.Second)
				assert.Contains(r, r.api.Requests(), "patch default/static status", "until it is deleted")

				r.api.Delete("default", "static", ptr.To[int64](0))
				r.after(10 * time.Minute)
				assert.NotContains(r, r.api.Requests(), "create default/static")
				assert.Nil(r, r.api.Get("default", "static"))
				assert.Len(r, r.rt.Running(fake.Target{Pod: "static"}), 1)
				assert.Empty(r, r.node.uid())
				assert.NotEmpty(r, r.node.anyUID(), "certificates of the pods are requested with it")

				r.stop()
				r.api.Remove("nodes", "", "node")
				r.start()
				r.after(time.Minute)
				require.NotNil(r, r.api.Get("default", "static"))
				assert.Equal(r, r.api.Object("nodes", "", "node").(*v1.Node).UID,
					r.api.Get("default", "static").OwnerReferences[0].UID)
			})
		})
	}
}
