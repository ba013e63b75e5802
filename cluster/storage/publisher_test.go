package storage

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

var disk = csinode.Driver{Name: "csi.example.com", NodeID: "i-1", MaxVolumes: 25,
	Topology: map[string]string{"example.com/zone": "a"}}

// driversOf returns the IDs of the drivers in the CSINode object.
func driversOf(object *storagev1.CSINode) map[string]string {
	drivers := map[string]string{}
	if object != nil {
		for _, d := range object.Spec.Drivers {
			drivers[d.Name] = d.NodeID
		}
	}
	return drivers
}

func TestInstall(t *testing.T) {
	onNode(t, func(r *rig) {
		r.register()
		r.requests()
		require.NoError(r, r.storage.Install(r.Context(), disk))
		assert.Equal(r, []string{"get nodes/node", "patch nodes/node status", "get csinodes/node",
			"update csinodes/node"}, r.requests())
		assert.Equal(r, `{"csi.example.com":"i-1"}`, r.object().Annotations[nodeIDAnnotation])
		assert.Equal(r, "a", r.object().Labels["example.com/zone"])
		assert.Equal(r, []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "i-1",
			TopologyKeys: []string{"example.com/zone"}, Allocatable: count(25)}}, r.csiNode().Spec.Drivers)

		r.requests()
		require.NoError(r, r.storage.Install(r.Context(), disk))
		assert.Empty(r, r.requests("patch", "update", "create"), "nothing differs")

		require.NoError(r, r.storage.Install(r.Context(), csinode.Driver{Name: "nfs.example.com", NodeID: "n"}))
		require.NoError(r, r.storage.Uninstall(r.Context(), disk.Name))
		assert.Equal(r, map[string]string{"nfs.example.com": "n"}, driversOf(r.csiNode()))
		assert.Equal(r, `{"nfs.example.com":"n"}`, r.object().Annotations[nodeIDAnnotation])
		assert.Equal(r, "a", r.object().Labels["example.com/zone"], "labels stay")
		r.requests()
		require.NoError(r, r.storage.Uninstall(r.Context(), disk.Name))
		assert.Empty(r, r.requests("patch", "update", "create"))
	})
}

func TestInstallFails(t *testing.T) {
	onNode(t, func(r *rig) {
		r.register()
		require.Error(r, r.storage.Install(r.Context(), csinode.Driver{Name: "d"}))
		require.Error(r, r.storage.Install(r.Context(), csinode.Driver{NodeID: "d"}))

		node := r.object()
		node.Labels = map[string]string{"example.com/zone": "b"}
		r.api.Put("nodes", node)
		err := r.storage.Install(r.Context(), disk)
		require.EqualError(r, err, "error updating Node object with CSI driver node info: detected topology value "+
			`collision: driver reported "example.com/zone":"a" but existing label is "example.com/zone":"b"`)
		assert.Empty(r, r.object().Annotations)
		assert.Empty(r, driversOf(r.csiNode()))
		r.requests()
		r.after(time.Hour)
		assert.Empty(r, r.requests(), "it is not tried again")

		delete(node.Labels, "example.com/zone")
		r.api.Put("nodes", node)
		r.refuse(func(req *apitest.Request) error {
			if req.Verb == "update" {
				return forbidden(req)
			}
			return nil
		})
		err = r.storage.Install(r.Context(), disk)
		require.True(r, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(r, err, "error updating CSINode object with CSI driver node info: ")

		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		require.ErrorIs(r, r.storage.Install(ctx, disk), context.Canceled)
	})
}

// A write that conflicts with another one is made with what the other one has left.
func TestConflicts(t *testing.T) {
	for name, test := range map[string]struct {
		conflicts int
		fails     bool
	}{"three": {3, false}, "more": {4, true}} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.register()
				left := test.conflicts
				r.api.Before(func(req *apitest.Request) (*http.Response, error) {
					if req.Verb == "update" && left > 0 {
						left--
						object := r.csiNode()
						object.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "other", NodeID: "o"}}
						r.api.Put("csinodes", object)
					}
					return nil, nil
				})
				err := r.storage.Install(r.Context(), disk)
				if test.fails {
					require.True(r, apierrors.IsConflict(err), "%v", err)
					return
				}
				require.NoError(r, err)
				assert.Equal(r, map[string]string{"other": "o", "csi.example.com": "i-1"}, driversOf(r.csiNode()))
			})
		})
	}
}

func TestReady(t *testing.T) {
	for name, test := range map[string]struct {
		before *storagev1.CSINode // nil: there is none
		writes []string
		want   map[string]string
	}{
		"new": {writes: []string{"create csinodes"}, want: map[string]string{}},
		"of an earlier agent": {before: func() *storagev1.CSINode {
			object := newCSINode("node", "uid-1")
			setDriver(object, disk)
			return object
		}(), want: map[string]string{"csi.example.com": "i-1"}},
		"without the annotation": {before: func() *storagev1.CSINode {
			object := newCSINode("node", "uid-1")
			setDriver(object, disk)
			object.Annotations = nil
			return object
		}(), writes: []string{"update csinodes/node"}, want: map[string]string{"csi.example.com": "i-1"}},
		"of another node object": {before: func() *storagev1.CSINode {
			object := newCSINode("node", "uid-0")
			setDriver(object, disk)
			return object
		}(), writes: []string{"delete csinodes/node", "create csinodes"}, want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				if test.before != nil {
					r.api.Put("csinodes", test.before)
				}
				r.after(time.Minute)
				require.Equal(r, ErrNotInitialized, r.storage.Ready())
				assert.Empty(r, r.requests(), "the node is not registered")
				r.register()
				r.after(time.Second)
				require.NoError(r, r.storage.Ready())
				assert.Equal(r, test.writes, r.requests("create", "update", "delete"))
				object := r.csiNode()
				assert.Equal(r, test.want, driversOf(object))
				assert.Equal(r, types.UID("uid-1"), object.OwnerReferences[0].UID)
				assert.Equal(r, migratedPlugins, object.Annotations[v1.MigratedPluginsAnnotationKey])
			})
		})
	}
}

// While the CSINode object cannot be created, the node is not ready, and it is tried again.
func TestNotReady(t *testing.T) {
	onNode(t, func(r *rig) {
		r.refuse(forbidden)
		r.register()
		r.after(10 * time.Minute)
		err := r.storage.Ready()
		require.ErrorContains(r, err, "failed to initialize CSINode: ")
		assert.True(r, apierrors.IsForbidden(err))
		n := len(r.requests())
		assert.True(r, n > 5 && n < 20, "%d requests", n)
		r.setAway(false)
		r.after(2 * time.Minute)
		require.NoError(r, r.storage.Ready())
		r.requests()
		r.after(time.Hour)
		assert.Empty(r, r.requests())
	})
}

// A driver that registers while the API server is away is published when it answers. One that is removed meanwhile is
// not.
func TestInstallWithoutTheAPIServer(t *testing.T) {
	for name, away := range map[string]func(r *rig){
		"away":           func(r *rig) { r.register(); r.setAway(true) },
		"hangs":          func(r *rig) { r.register(); r.api.Before(apitest.Hang) },
		"not registered": func(*rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				away(r)
				began := time.Now()
				require.NoError(r, r.storage.Install(r.Context(), disk))
				assert.LessOrEqual(r, time.Since(began), registrationTimeout+changeTimeout)
				require.NoError(r, r.storage.Install(r.Context(), csinode.Driver{Name: "removed", NodeID: "n"}))
				require.NoError(r, r.storage.Uninstall(r.Context(), "removed"))
				r.after(time.Minute)
				assert.Empty(r, driversOf(r.csiNode()))
				r.setAway(false)
				r.register()
				r.after(2 * time.Minute)
				assert.Equal(r, map[string]string{"csi.example.com": "i-1"}, driversOf(r.csiNode()))
				assert.Equal(r, `{"csi.example.com":"i-1"}`, r.object().Annotations[nodeIDAnnotation])

				r.setAway(true)
				require.NoError(r, r.storage.Uninstall(r.Context(), disk.Name))
				r.setAway(false)
				r.after(2 * time.Minute)
				assert.Empty(r, driversOf(r.csiNode()))
				assert.Empty(r, r.object().Annotations)
				r.requests()
				r.after(time.Hour)
				assert.Empty(r, r.requests())
			})
		})
	}
}

// If another node object replaces that of the node, the drivers are published for it.
func TestNodeIsRecreated(t *testing.T) {
	onNode(t, func(r *rig) {
		r.register()
		require.NoError(r, r.storage.Install(r.Context(), disk))
		r.api.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid-2"}})
		r.register()
		r.after(time.Second)
		object := r.csiNode()
		assert.Equal(r, types.UID("uid-2"), object.OwnerReferences[0].UID)
		assert.Equal(r, map[string]string{"csi.example.com": "i-1"}, driversOf(object))
		assert.Equal(r, `{"csi.example.com":"i-1"}`, r.object().Annotations[nodeIDAnnotation])
		assert.Equal(r, "a", r.object().Labels["example.com/zone"])
	})
}

// The API server does not let the ID of a driver change in an object that has the driver.
func TestInstallWithAnotherID(t *testing.T) {
	onNode(t, func(r *rig) {
		r.register()
		require.NoError(r, r.storage.Install(r.Context(), disk))
		r.refuse(func(req *apitest.Request) error {
			if req.Verb == "update" && driversOf(r.csiNode())[disk.Name] == "i-1" && bytes.Contains(req.Body, []byte("other-id")) {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "CSINode"}, "node", nil)
			}
			return nil
		})
		r.restart()
		r.register()
		other := disk
		other.NodeID = "other-id"
		require.NoError(r, r.storage.Install(r.Context(), other))
		assert.Equal(r, map[string]string{"csi.example.com": "other-id"}, driversOf(r.csiNode()))
		assert.Equal(r, `{"csi.example.com":"other-id"}`, r.object().Annotations[nodeIDAnnotation])
	})
}
