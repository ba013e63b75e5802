package storage

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

func TestNewCSINode(t *testing.T) {
	object := newCSINode("node", "uid")
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node", UID: "uid"}},
		object.OwnerReferences)
	assert.Equal(t, map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs," +
		"kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd," +
		"kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"}, object.Annotations)
	data, err := json.Marshal(object.Spec)
	require.NoError(t, err)
	assert.Equal(t, `{"drivers":[]}`, string(data), "the API requires the field")
}

func TestSetMigrated(t *testing.T) {
	plugins := strings.Split(migratedPlugins, ",")
	plugins[0], plugins[6] = plugins[6], plugins[0]
	for name, test := range map[string]struct {
		value   string
		changed bool
	}{
		"none":          {"", true},
		"some":          {"kubernetes.io/aws-ebs", true},
		"others":        {migratedPlugins + ",example.com/x", true},
		"these":         {migratedPlugins, false},
		"another order": {strings.Join(plugins, ","), false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
			if test.value != "" {
				object.Annotations[v1.MigratedPluginsAnnotationKey] = test.value
			}
			assert.Equal(t, test.changed, setMigrated(object))
			if test.changed {
				assert.Equal(t, map[string]string{"a": "b", v1.MigratedPluginsAnnotationKey: migratedPlugins},
					object.Annotations)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	ref := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: name, UID: uid}
	}
	for name, test := range map[string]struct {
		refs []metav1.OwnerReference
		want types.UID
	}{
		"none":            {nil, ""},
		"ours":            {[]metav1.OwnerReference{ref("Node", "node", "uid")}, "uid"},
		"ours and others": {[]metav1.OwnerReference{ref("Node", "n", "1"), ref("Node", "node", "uid"), ref("Node", "node", "2")}, "uid"},
		"former":          {[]metav1.OwnerReference{ref("Node", "node", "old")}, "old"},
		"another kind":    {[]metav1.OwnerReference{ref("Pod", "node", "uid")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.refs}}
			assert.Equal(t, test.want, owner(object, "node", "uid"))
		})
	}
}

func count(n int32) *storagev1.VolumeNodeResources { return &storagev1.VolumeNodeResources{Count: &n} }

func TestSetDriver(t *testing.T) {
	other := storagev1.CSINodeDriver{Name: "other", NodeID: "o", Allocatable: count(3)}
	for name, test := range map[string]struct {
		before []storagev1.CSINodeDriver
		driver csinode.Driver
		want   storagev1.CSINodeDriver
		same   bool
	}{
		"new": {driver: csinode.Driver{NodeID: "i", MaxVolumes: 7, Topology: map[string]string{"b": "1", "a": "2"}},
			want: storagev1.CSINodeDriver{NodeID: "i", Allocatable: count(7), TopologyKeys: []string{"a", "b"}}},
		"beside another": {before: []storagev1.CSINodeDriver{other}, driver: csinode.Driver{NodeID: "i"},
			want: storagev1.CSINodeDriver{NodeID: "i"}},
		"too many volumes": {driver: csinode.Driver{NodeID: "i", MaxVolumes: math.MaxInt32 + 1},
			want: storagev1.CSINodeDriver{NodeID: "i", Allocatable: count(math.MaxInt32)}},
		"negative": {driver: csinode.Driver{NodeID: "i", MaxVolumes: -1}, want: storagev1.CSINodeDriver{NodeID: "i"}},
		"another ID": {before: []storagev1.CSINodeDriver{{Name: "d", NodeID: "old"}, other},
			driver: csinode.Driver{NodeID: "i"}, want: storagev1.CSINodeDriver{NodeID: "i"}},
		"another number": {before: []storagev1.CSINodeDriver{{Name: "d", NodeID: "i", Allocatable: count(1)}},
			driver: csinode.Driver{NodeID: "i"}, want: storagev1.CSINodeDriver{NodeID: "i"}},
		"another key": {before: []storagev1.CSINodeDriver{{Name: "d", NodeID: "i", TopologyKeys: []string{"a"}}},
			driver: csinode.Driver{NodeID: "i"}, want: storagev1.CSINodeDriver{NodeID: "i"}},
		"the same": {before: []storagev1.CSINodeDriver{other, {Name: "d", NodeID: "i", Allocatable: count(math.MaxInt32),
			TopologyKeys: []string{"b", "a"}}}, driver: csinode.Driver{NodeID: "i", MaxVolumes: math.MaxInt64,
			Topology: map[string]string{"b": "1", "a": "2"}}, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			test.driver.Name, test.want.Name = "d", "d"
			object := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: test.before}}
			before := object.DeepCopy()
			assert.Equal(t, !test.same, setDriver(object, test.driver))
			if test.same {
				assert.Equal(t, before, object)
				return
			}
			drivers := object.Spec.Drivers
			assert.Equal(t, test.want, drivers[len(drivers)-1])
			for _, driver := range drivers[:len(drivers)-1] {
				assert.Equal(t, other, driver)
			}
			assert.False(t, setDriver(object, test.driver), "it is the same now")
			assert.True(t, removeDriver(object, "d"))
			assert.False(t, removeDriver(object, "d"))
		})
	}
}

func TestPublish(t *testing.T) {
	for name, test := range map[string]struct {
		annotation string
		labels     map[string]string
		topology   map[string]string
		patch, err string
	}{
		"new": {topology: map[string]string{"zone": "z", "rack": "r"},
			patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"d\":\"i\"}"},"labels":{"rack":"r","zone":"z"}}}`},
		"beside another": {annotation: `{"z":"1"}`,
			patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"d\":\"i\",\"z\":\"1\"}"}}}`},
		"another ID": {annotation: `{"d":"old"}`,
			patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"d\":\"i\"}"}}}`},
		"null": {annotation: `null`,
			patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"d\":\"i\"}"}}}`},
		"the same":      {annotation: `{"d":"i"}`, labels: map[string]string{"a": "b"}, topology: map[string]string{"a": "b"}},
		"another label": {annotation: `{"d":"i"}`, topology: map[string]string{"a": "b"}, patch: `{"metadata":{"labels":{"a":"b"}}}`},
		"collision": {labels: map[string]string{"zone": "1"}, topology: map[string]string{"a": "b", "zone": "2"},
			err: `detected topology value collision: driver reported "zone":"2" but existing label is "zone":"1"`},
		"not JSON": {annotation: `{`,
			err: `failed to parse node's "csi.volume.kubernetes.io/nodeid" annotation value ("{") err=unexpected end of JSON input`},
	} {
		t.Run(name, func(t *testing.T) {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			if test.annotation != "" {
				node.Annotations = map[string]string{nodeIDAnnotation: test.annotation}
			}
			change, err := publish(node, csinode.Driver{Name: "d", NodeID: "i", Topology: test.topology})
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			patch, err := change.patch()
			require.NoError(t, err)
			assert.Equal(t, test.patch, string(patch))
		})
	}
}

func TestWithdraw(t *testing.T) {
	for name, test := range map[string]struct{ annotation, patch, err string }{
		"none":    {},
		"another": {annotation: `{"z":"1"}`},
		"last":    {annotation: `{"d":"i"}`, patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":null}}}`},
		"one of two": {annotation: `{"d":"i","z":"1"}`,
			patch: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"z\":\"1\"}"}}}`},
		"not strings": {annotation: `{"d":1}`, err: "failed to parse node's"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				nodeIDAnnotation: test.annotation}}}
			change, err := withdraw(node, "d")
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			patch, err := change.patch()
			require.NoError(t, err)
			assert.Equal(t, test.patch, string(patch))
		})
	}
}

// Whatever the annotation of a node object is, a driver that is published has its ID in it, a driver that is removed
// has none, and those of others stay.
func FuzzNodeIDs(f *testing.F) {
	for _, seed := range []string{"", "{", "null", `{"a":"b"}`, `{"a":1}`, `[]`, `{"a":"b","a":"c"}`, "{\"\\ud800\":\"\xff\"}"} {
		f.Add(seed, "a", "i")
	}
	f.Fuzz(func(t *testing.T, annotation, name, id string) {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodeIDAnnotation: annotation}}}
		apply := func(c nodeChange, err error) bool {
			if err != nil {
				return false
			}
			if _, err := c.patch(); err != nil {
				t.Fatal(err)
			}
			if value, ok := c.annotations[nodeIDAnnotation]; ok && value == nil {
				node.Annotations = nil
			} else if ok {
				node.Annotations = map[string]string{nodeIDAnnotation: *value}
			}
			return true
		}
		before, failed := nodeIDs(node)
		if apply(publish(node, csinode.Driver{Name: name, NodeID: id})) != (failed == nil) {
			t.Fatal("an annotation that can be read is not changed, or the reverse")
		}
		if failed != nil || strings.ToValidUTF8(name+id, "") != name+id {
			return // names of drivers and nodes that the API does not accept
		}
		ids, err := nodeIDs(node)
		require.NoError(t, err)
		before[name] = id
		assert.Equal(t, before, ids)
		require.True(t, apply(withdraw(node, name)))
		ids, err = nodeIDs(node)
		require.NoError(t, err)
		delete(before, name)
		assert.Equal(t, before, ids)
	})
}
