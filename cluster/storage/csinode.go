package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

// nodeIDAnnotation is the annotation of the node object with the ID that each driver has for the node: a JSON object.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// migratedPlugins are the volume plugins of Kubernetes whose volumes CSI drivers handle, in order: those of
// k8s.io/csi-translation-lib in kubelet 1.37. Without them the scheduler ignores the limits of the drivers, and
// controllers do not use the drivers for these volumes.
const migratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file," +
	"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// newCSINode returns the CSINode object of a node, without drivers.
func newCSINode(node string, uid types.UID) *storagev1.CSINode {
	object := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node, UID: uid},
		}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}, // required by the API
	}
	setMigrated(object)
	return object
}

// owner returns the UID of the node that owns the object: uid if that is one of them, and "" if none does.
func owner(object *storagev1.CSINode, node string, uid types.UID) (other types.UID) {
	for _, o := range object.OwnerReferences {
		if o.Kind != "Node" {
			continue
		}
		if other = o.UID; o.Name == node && o.UID == uid {
			break
		}
	}
	return other
}

// setMigrated sets the annotation of the migrated plugins, and reports whether they differ.
func setMigrated(object *storagev1.CSINode) bool {
	old := sets.New(strings.Split(object.Annotations[v1.MigratedPluginsAnnotationKey], ",")...)
	if old.Equal(sets.New(strings.Split(migratedPlugins, ",")...)) {
		return false
	}
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1.MigratedPluginsAnnotationKey, migratedPlugins)
	return true
}

// setDriver sets the driver in the object, and reports whether it differs.
func setDriver(object *storagev1.CSINode, d csinode.Driver) bool {
	driver := storagev1.CSINodeDriver{
		Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology)),
		Allocatable: allocatable(d.MaxVolumes),
	}
	drivers := make([]storagev1.CSINodeDriver, 0, len(object.Spec.Drivers)+1)
	changed := true
	for _, old := range object.Spec.Drivers {
		if old.Name != d.Name {
			drivers = append(drivers, old)
		} else if old.NodeID == d.NodeID && sameCount(old.Allocatable, driver.Allocatable) &&
			sets.New(old.TopologyKeys...).Equal(sets.New(driver.TopologyKeys...)) {
			changed = false
		}
	}
	if changed {
		object.Spec.Drivers = append(drivers, driver)
	}
	return changed
}

// removeDriver removes the driver from the object, and reports whether it was there.
func removeDriver(object *storagev1.CSINode, name string) bool {
	before := len(object.Spec.Drivers)
	object.Spec.Drivers = slices.DeleteFunc(object.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == name
	})
	return len(object.Spec.Drivers) != before
}

// allocatable returns the number of volumes as the API has it; nil if it is not known or negative.
func allocatable(volumes int64) *storagev1.VolumeNodeResources {
	if volumes <= 0 {
		return nil
	}
	return &storagev1.VolumeNodeResources{Count: new(int32(min(volumes, math.MaxInt32)))}
}

func sameCount(a, b *storagev1.VolumeNodeResources) bool {
	count := func(r *storagev1.VolumeNodeResources) int64 {
		if r == nil || r.Count == nil {
			return -1
		}
		return int64(*r.Count)
	}
	return count(a) == count(b)
}

// nodeChange is a change of the metadata of a node object. The zero value is none.
type nodeChange struct {
	labels      map[string]string
	annotations map[string]*string // nil: it is removed
}

// patch returns the merge patch; nil if there is nothing to change.
func (c nodeChange) patch() ([]byte, error) {
	if len(c.labels) == 0 && len(c.annotations) == 0 {
		return nil, nil
	}
	metadata := map[string]any{}
	if len(c.labels) > 0 {
		metadata["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		metadata["annotations"] = c.annotations
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// publish returns the change by which the node object has the driver. It is an error if a label of the topology has
// another value, or if the annotation cannot be read.
func publish(node *v1.Node, d csinode.Driver) (c nodeChange, err error) {
	ids, err := nodeIDs(node)
	if err != nil {
		return c, err
	}
	if id, ok := ids[d.Name]; !ok || id != d.NodeID {
		ids[d.Name] = d.NodeID
		if c.annotations, err = annotate(ids); err != nil {
			return nodeChange{}, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		value := d.Topology[key]
		switch old, ok := node.Labels[key]; {
		case ok && old != value: // kubelet's message
			return nodeChange{}, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing "+
				"label is %q:%q", key, value, key, old)
		case !ok:
			if c.labels == nil {
				c.labels = map[string]string{}
			}
			c.labels[key] = value
		}
	}
	return c, nil
}

// withdraw returns the change by which the node object does not have the driver. Labels stay.
func withdraw(node *v1.Node, name string) (c nodeChange, err error) {
	ids, err := nodeIDs(node)
	if err != nil {
		return c, err
	}
	if _, ok := ids[name]; ok {
		delete(ids, name)
		c.annotations, err = annotate(ids)
	}
	return c, err
}

// nodeIDs returns the IDs of the node by the names of drivers. The map is not nil if there is no error.
func nodeIDs(node *v1.Node) (map[string]string, error) {
	ids := map[string]string{}
	text := node.Annotations[nodeIDAnnotation]
	if text == "" {
		return ids, nil
	}
	if err := json.Unmarshal([]byte(text), &ids); err != nil { // kubelet's message
		return nil, fmt.Errorf("failed to parse node's %q annotation value (%q) err=%w", nodeIDAnnotation, text, err)
	}
	if ids == nil { // null
		ids = map[string]string{}
	}
	return ids, nil
}

// annotate returns the annotation with the IDs.
func annotate(ids map[string]string) (map[string]*string, error) {
	if len(ids) == 0 {
		return map[string]*string{nodeIDAnnotation: nil}, nil
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	return map[string]*string{nodeIDAnnotation: new(string(text))}, nil
}
