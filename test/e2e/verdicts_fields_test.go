package e2e

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// notInCorpus are fields of a pod that no good pod of the corpus has.
var notInCorpus = map[string][]string{
	"nothing on a node acts on it": {
		"PodSpec.affinity", "PodSpec.topologySpreadConstraints", "PodSpec.schedulingGroup", "PodSpec.schedulerName",
	},
	"it cannot be there on a node":        {"PodSpec.ephemeralContainers", "PodSpec.schedulingGates"},
	"Normalize and SetDefaults see to it": {"PodSpec.nodeName", "PodSpec.serviceAccount"},
	"it is for Windows":                   {"PodSecurityContext.windowsOptions", "SecurityContext.windowsOptions"},
	"nothing here provides such volumes": {
		"VolumeSource.gcePersistentDisk", "VolumeSource.awsElasticBlockStore", "VolumeSource.gitRepo",
		"VolumeSource.nfs", "VolumeSource.iscsi",
		"VolumeSource.glusterfs", "VolumeSource.rbd", "VolumeSource.flexVolume", "VolumeSource.cinder",
		"VolumeSource.cephfs", "VolumeSource.flocker",
		"VolumeSource.fc", "VolumeSource.azureFile", "VolumeSource.vsphereVolume", "VolumeSource.quobyte",
		"VolumeSource.azureDisk",
		"VolumeSource.photonPersistentDisk", "VolumeSource.portworxVolume", "VolumeSource.scaleIO",
		"VolumeSource.storageos", "VolumeSource.csi",
		"VolumeSource.ephemeral", "VolumeProjection.clusterTrustBundle", "VolumeProjection.podCertificate",
	},
	"the API server drops it, or its gate has other defaults": {"PodSpec.evictionResponders", "HTTPGetAction.protocol"},
}

// TestCorpusHasEveryField shows that no field of a pod is left out by mistake, also
// when there are new ones.
func TestCorpusHasEveryField(t *testing.T) {
	t.Parallel()
	leftOut := map[string]bool{}
	for _, fields := range notInCorpus {
		for _, f := range fields {
			leftOut[f] = true
		}
	}
	wanted, there := map[string]bool{}, map[string]bool{}
	declared(wanted, leftOut, reflect.TypeFor[v1.PodSpec]())
	for _, m := range goodManifests(t) {
		var pod v1.Pod
		require.NoError(t, json.Unmarshal(render(t, m.pod), &pod))
		given(there, reflect.ValueOf(pod.Spec))
	}
	maps.DeleteFunc(wanted, func(f string, _ bool) bool { return there[f] })
	assert.Empty(t, slices.Sorted(maps.Keys(wanted)), "add these to a pod of testdata/verdicts, or to notInCorpus")
}

func fieldName(t reflect.Type, f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" { // embedded
		return ""
	}
	return t.Name() + "." + name
}

func isLeaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || t == reflect.TypeFor[resource.Quantity]() ||
		t == reflect.TypeFor[intstr.IntOrString]()
}

// declared collects the fields of a type and of those that it is made of.
func declared(all, leftOut map[string]bool, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if isLeaf(t) {
		return
	}
	for f := range t.Fields() {
		name := fieldName(t, f)
		if leftOut[name] {
			continue
		}
		if name != "" {
			all[name] = true
		}
		declared(all, leftOut, f.Type)
	}
}

// given collects the fields of a value that are not empty.
func given(all map[string]bool, v reflect.Value) {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			given(all, v.Index(i))
		}
		return
	}
	if isLeaf(v.Type()) {
		return
	}
	for f, value := range v.Fields() {
		if !value.IsZero() {
			all[fieldName(v.Type(), f)] = true
			given(all, value)
		}
	}
}
