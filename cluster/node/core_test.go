package node

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func gpus(list v1.ResourceList) int64 { q := list["example.com/gpu"]; return q.Value() }

func TestAllocatable(t *testing.T) {
	capacity := v1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "ephemeral-storage": resource.MustParse("101430960Ki"),
		"hugepages-2Mi": resource.MustParse("1Gi"), "pods": resource.MustParse("110"), "example.com/gpu": resource.MustParse("2"),
	}
	for name, tc := range map[string]struct {
		reserved v1.ResourceList
		eviction map[string]string
		want     map[v1.ResourceName]string
		err      string
	}{
		"nothing reserved":    {want: map[v1.ResourceName]string{"cpu": "4", "memory": "7Gi", "pods": "110", "example.com/gpu": "2"}},
		"reserved":            {reserved: v1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}, want: map[v1.ResourceName]string{"cpu": "3500m", "memory": "6Gi"}},
		"kubelet's defaults":  {eviction: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}, want: map[v1.ResourceName]string{"memory": "7068Mi", "ephemeral-storage": "93478772582"}},
		"more than there is":  {reserved: v1.ResourceList{"cpu": resource.MustParse("5")}, want: map[v1.ResourceName]string{"cpu": "0"}},
		"none of it":          {eviction: map[string]string{"memory.available": "0%", "nodefs.available": "100%"}, want: map[v1.ResourceName]string{"memory": "7Gi", "ephemeral-storage": "101430960Ki"}},
		"a wrong percentage":  {eviction: map[string]string{"nodefs.available": "110%"}, err: "evictionHard nodefs.available"},
		"not a number":        {eviction: map[string]string{"nodefs.available": "NaN%"}, err: "between"},
		"a negative quantity": {eviction: map[string]string{"memory.available": "-1"}, err: "above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Allocatable(capacity, tc.reserved, tc.eviction)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			for name, want := range tc.want {
				q := got[name]
				assert.Zero(t, q.Cmp(resource.MustParse(want)), "%s is %s, want %s", name, q.String(), want)
			}
		})
	}
}

func TestReadyTexts(t *testing.T) {
	assert.Equal(t, "kubelet is posting ready status", Ready(nil, nil).Message)
	assert.Equal(t, "[a, b]", Ready(errors.New("a"), nil, errors.New("b")).Message)
	assert.Equal(t, "a", Ready(errors.New("a")).Message)
	assert.Equal(t, "a, b", Ready(errors.Join(errors.New("a"), errors.New("b"))).Message, "one line")
}

// Clients compare versions, kubectl and kubeadm among them.
func TestKubeletVersion(t *testing.T) {
	v, err := utilversion.ParseSemantic(DefaultKubeletVersion)
	require.NoError(t, err)
	assert.Equal(t, uint(37), v.Minor())
	assert.Empty(t, v.PreRelease(), "a pre-release is older than the release")
}

// A patch that is applied to what the server has, which others have changed, sets what we
// changed and keeps what they did.
func TestPatch(t *testing.T) {
	old := existingNode()
	old.Status.Addresses = []v1.NodeAddress{{Type: "InternalIP", Address: "1.1.1.1"},
		{Type: "InternalIP", Address: "::1"}, {Type: "Hostname", Address: "n"}}
	desired := old.DeepCopy()
	desired.Spec.ProviderID = "never"
	desired.Status.Addresses = []v1.NodeAddress{{Type: "InternalIP", Address: "2.2.2.2"},
		{Type: "Hostname", Address: "n"}}
	desired.Status.Conditions, _ = setConditions(desired.Status.Conditions, []v1.NodeCondition{Ready()},
		time.Unix(1000, 0))
	patch, err := patchOf(old, desired)
	require.NoError(t, err)

	server := old.DeepCopy()
	server.Status.Conditions = append(server.Status.Conditions, v1.NodeCondition{Type: "KernelDeadlock"})
	server.Labels["new"] = "x"
	data, err := json.Marshal(server)
	require.NoError(t, err)
	data, err = strategicpatch.StrategicMergePatch(data, patch, v1.Node{})
	require.NoError(t, err)
	got := &v1.Node{}
	require.NoError(t, json.Unmarshal(data, got))
	assert.Equal(t, desired.Status.Addresses, got.Status.Addresses)
	assert.Empty(t, got.Spec.ProviderID)
	assert.Equal(t, "x", got.Labels["new"])
	assert.NotNil(t, condition(got.Status.Conditions, "KernelDeadlock"))
	assert.Equal(t, v1.ConditionTrue, condition(got.Status.Conditions, v1.NodeReady).Status)
	assert.NotContains(t, string(patch), "volumesInUse")
	assert.NotContains(t, string(patch), "CalicoIsUp", "only what changed")
}

func TestHolder(t *testing.T) {
	me := identity{"m1", "u1", "/a"}
	now := metav1.MicroTime{Time: time.Unix(1000, 0)}
	kubelet := existingNode()
	other := existingNode()
	other.Status.NodeInfo.MachineID = "m2"
	s := settings{name: "n", Options: Options{LeaseDuration: 40 * time.Second}}
	ours := s.renewed(nil, kubelet, me, now.Time)
	theirs := s.renewed(nil, kubelet, identity{"m2", "u2", "/a"}, now.Time)
	plain := ours.DeepCopy()
	plain.Annotations = nil
	assert.Empty(t, holder(nil, nil, me))
	assert.Empty(t, holder(ours, other, me), "the annotation decides")
	assert.Equal(t, "the agent m2/u2//a", holder(theirs, kubelet, me))
	assert.Empty(t, holder(plain, kubelet, me), "a kubelet of this machine")
	assert.Contains(t, holder(plain, other, me), "m2")
	assert.Empty(t, holder(plain, nil, me))
	assert.True(t, fresh(ours, now.Add(39*time.Second)))
	assert.False(t, fresh(ours, now.Add(40*time.Second)))
	assert.True(t, fresh(ours, now.Add(-time.Hour)), "their clock is ahead")
}

func TestReportedImages(t *testing.T) {
	found := []runtime.Image{
		{ID: "small", Size: 1, Tags: []string{"s:1"}},
		{ID: "b", Size: 9, Tags: []string{"b:2", "b:1"}, Digests: []string{"b@sha256:2", "b@sha256:1", "b@sha256:3", "b@sha256:4"}},
		{ID: "a", Size: 9, Tags: []string{"a:1"}},
	}
	got := reportedImages(found, 2)
	assert.Equal(t, []v1.ContainerImage{
		{Names: []string{"a:1"}, SizeBytes: 9},
		{Names: []string{"b@sha256:1", "b@sha256:2", "b@sha256:3", "b@sha256:4", "b:1"}, SizeBytes: 9},
	}, got)
	assert.Len(t, reportedImages(found, -1), 3)
	assert.Equal(t, "small", found[0].ID, "the list is not changed")
}

func TestValidateLabels(t *testing.T) {
	assert.Empty(t, ValidateLabels(map[string]string{"a": "b", "node.kubernetes.io/x": "y",
		"x.kubelet.kubernetes.io/z": "", v1.LabelHostname: "n"}))
	assert.Len(t, ValidateLabels(map[string]string{"node-role.kubernetes.io/master": "", "k8s.io/x": "y", "a b": "c",
		"c": "not valid!"}), 4)
}
