package cluster

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/storage"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

// plain is a plugin of persistent volumes.
type plain struct{ volume.PersistentBase }

func (plain) Name() string                          { return "example.com/plain" }
func (plain) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.NFS != nil }
func (plain) Publish(context.Context, volume.PersistentRequest) (out volume.Published, err error) {
	return out, volume.ErrUnsupported
}

// attaching is a plugin whose volumes a controller attaches.
type attaching struct {
	plain

	mu     sync.Mutex
	inUse  []v1.UniqueVolumeName
	unread bool
}

func (*attaching) Name() string { return csi.Name }

func (a *attaching) VolumesInUse() ([]v1.UniqueVolumeName, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse, !a.unread
}

func (a *attaching) use(volumes ...v1.UniqueVolumeName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inUse, a.unread = volumes, false
}

func TestVolumesInUseOfPlugins(t *testing.T) {
	assert.Nil(t, volumesInUse(nil))
	assert.Nil(t, volumesInUse([]volume.PersistentPlugin{plain{}}))
	a, b := &attaching{inUse: []v1.UniqueVolumeName{"a"}}, &attaching{unread: true}
	all := volumesInUse([]volume.PersistentPlugin{a, plain{}, b})
	_, known := all()
	assert.False(t, known)
	b.use("b")
	volumes, known := all()
	assert.True(t, known)
	assert.Equal(t, []v1.UniqueVolumeName{"a", "b"}, volumes)
}

// A node with CSI drivers has a CSINode object when it is ready, reports volumes in use, leaves attaching to the
// controller, and has what it has read after a restart without the API server.
func TestStorage(t *testing.T) {
	onNode(t, func(r *rig) {
		r.after(time.Minute)
		assert.Nil(r, r.api.Object("csinodes", "", "node"), "without CSI")
		r.stop()
		plugin := &attaching{unread: true}
		r.change = func(c *Config, o *kubeletkit.Options) {
			store, err := checkpoint.New(filepath.Join(r.root, "kept"), checkpoint.Options{})
			require.NoError(r, err)
			c.CSI, o.Checkpoint, o.Volumes.Persistent = true, store, []volume.PersistentPlugin{plugin}
		}
		r.start()
		r.after(2 * time.Second)
		object := func() *v1.Node { return r.api.Object("nodes", "", "node").(*v1.Node) }
		require.NotNil(r, r.api.Object("csinodes", "", "node"))
		assert.Contains(r, object().Annotations, "volumes.kubernetes.io/controller-managed-attach-detach")
		for _, c := range object().Status.Conditions {
			assert.Equal(r, c.Type == v1.NodeReady, c.Status == v1.ConditionTrue, c.Type)
		}

		name, pod := csinode.UniqueName("d", "v"), &v1.Pod{}
		require.NoError(r, r.node.Storage().Install(r.Context(), csinode.Driver{Name: "d", NodeID: "i"}))
		assert.Len(r, r.api.Object("csinodes", "", "node").(*storagev1.CSINode).Spec.Drivers, 1)
		require.ErrorIs(r, r.node.Storage().Attached(r.Context(), name, pod), storage.ErrNotInUse)
		plugin.use(name)
		r.node.Update() // lifecycle.Node.NodeStatusChanged
		r.after(time.Second)
		assert.Equal(r, []v1.UniqueVolumeName{name}, object().Status.VolumesInUse)
		require.ErrorIs(r, r.node.Storage().Attached(r.Context(), name, pod), storage.ErrNotAttached)
		node := object()
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
		r.api.Put("nodes", node)
		r.after(time.Second)
		require.NoError(r, r.node.Storage().Attached(r.Context(), name, pod))

		bound := bound("web")
		bound.Spec.ServiceAccountName = "robot"
		token, err := r.node.Storage().Token(r.Context(), r.api.Create(bound), "d", nil)
		require.NoError(r, err)
		assert.Equal(r, "token of default/robot", token.Token)

		attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csinode.AttachmentName("v", "d", "node")},
			Status: storagev1.VolumeAttachmentStatus{Attached: true,
				AttachmentMetadata: map[string]string{"secret": "path"}}}
		r.api.Put("volumeattachments", attachment)
		_, err = r.node.Storage().Attachment(r.Context(), attachment.Name)
		require.NoError(r, err)
		r.after(5 * time.Second)
		r.stop()
		require.NoError(r, filepath.WalkDir(filepath.Join(r.root, "kept"), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				info, err := entry.Info()
				require.NoError(r, err)
				assert.Equal(r, fs.FileMode(0o600), info.Mode().Perm(), path)
			}
			return err
		}))
		r.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		r.start()
		got, err := r.node.Storage().Attachment(r.Context(), attachment.Name)
		require.NoError(r, err)
		assert.Equal(r, attachment.Status, got.Status)
		require.NoError(r, r.node.Storage().Attached(r.Context(), name, pod))
	})
}
