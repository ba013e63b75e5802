package node

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Whatever node object an API server has, the agent makes a report of it without a panic. If it can have
// the object, the report leads to the status that the agent has, and changes nothing of others.
func FuzzPatch(f *testing.F) {
	existing, err := json.Marshal(existingNode())
	require.NoError(f, err)
	f.Add(existing, true)
	f.Add(
		[]byte(
			`{"status":{"addresses":[{"type":"InternalIP","address":"a"},{"type":"InternalIP","address":"b"},{"type":"Hostname"}],"conditions":[{"type":"Ready","status":"Unknown"},{}],"capacity":{"cpu":"1500m","a/b":"1e2"}}}`), false)
	f.Add(
		[]byte(
			`{"metadata":{"name":"n","labels":{"kubernetes.io/os":"plan9"},"ownerReferences":[{"uid":"a"},{"uid":"a"}]},"spec":{"taints":[{"key":"a"},{"key":"a"}]},"status":{"conditions":[null,{"type":"Ready"},{"type":"Ready"}]}}`), true)
	f.Add(
		[]byte(
			`{"status":{"images":[{"names":null}],"nodeInfo":{"bootID":"b0"},"volumesAttached":[{}],"runtimeHandlers":[{"name":"x"}],"config":{}}}`), false)
	s := settings{name: "n", Options: Options{Hostname: "n", KubeletVersion: DefaultKubeletVersion,
		DeclaredFeatures: func() []string { return []string{"A"} }}}
	o := &observed{
		addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: v1.NodeInternalIP, Address: "2001:db8::1"}, {Type: v1.NodeHostName, Address: "n"}},
		info: &testMachine().info, images: &[]v1.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 1}},
		capacity: testMachine().capacity, port: 10250, runtime: runtime.Features{Name: "containerd", Version: "v2.1.4"},
	}
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, data []byte, adopt bool) {
		old, canonical, ok := apitest.Decode[v1.Node](t, data)
		if !ok {
			return
		}
		desired := old.DeepCopy()
		if adopt {
			s.repair(desired)
		}
		keepLabels(desired)
		o.setStatus(desired, &s, now)
		patch, err := patchOf(&old, desired)
		types := map[v1.NodeConditionType]bool{}
		for _, c := range old.Status.Conditions {
			types[c.Type] = true
		}
		if len(types) != len(old.Status.Conditions) {
			return
		}
		require.NoError(t, err)
		after, err := strategicpatch.StrategicMergePatch(canonical, patch, v1.Node{})
		require.NoError(t, err, "%s", patch)
		var got v1.Node
		require.NoError(t, json.Unmarshal(after, &got))
		require.False(t, changed(desired, &got), "the patch %s of %s leads to %s", patch, canonical, after)
		require.True(t, equality.Semantic.DeepEqual(old.Spec, got.Spec), "%s", patch)
		for i := range old.Status.Conditions {
			c := &old.Status.Conditions[i]
			if !slices.Contains([]v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure,
				v1.NodePIDPressure}, c.Type) {
				require.True(t, equality.Semantic.DeepEqual(c, condition(got.Status.Conditions, c.Type)), "%s", patch)
			}
		}
	})
}
