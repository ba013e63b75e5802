package podstatus

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
)

func at(second int) metav1.Time { return metav1.NewTime(time.Unix(int64(second), 0)) }

func cond(t v1.PodConditionType, s v1.ConditionStatus, second int) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: s, LastTransitionTime: at(second)}
}

func TestMerge(t *testing.T) {
	known := &v1.PodStatus{
		Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, StartTime: ptr.To(at(1)), ObservedGeneration: 3,
		NominatedNodeName:     "other",
		ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "claim"}},
		Conditions: []v1.PodCondition{
			cond(v1.PodScheduled, v1.ConditionTrue, 1),
			cond("example.com/gate", v1.ConditionTrue, 2),
			cond(v1.PodReady, v1.ConditionFalse, 3),
			cond(v1.PodResizePending, v1.ConditionTrue, 4), // ours, and not generated any more
		},
	}
	own := &v1.PodStatus{
		Phase: v1.PodPending, QOSClass: v1.PodQOSGuaranteed, StartTime: ptr.To(at(9)), ObservedGeneration: 2,
		Conditions: []v1.PodCondition{
			cond("example.com/gate", v1.ConditionFalse, 1), // an old copy
			cond(v1.PodReady, v1.ConditionTrue, 9),
			cond(v1.PodScheduled, v1.ConditionTrue, 9),
			cond(v1.ContainersReady, v1.ConditionTrue, 9),
		},
	}
	to := mergePodStatus(known, own)
	assert.Equal(t, v1.PodStatus{
		Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, StartTime: ptr.To(at(1)), ObservedGeneration: 3,
		NominatedNodeName:     "other",
		ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "claim"}},
		Conditions: []v1.PodCondition{
			cond(v1.PodScheduled, v1.ConditionTrue, 1), // its transition time stays
			cond("example.com/gate", v1.ConditionTrue, 2),
			cond(v1.PodReady, v1.ConditionTrue, 9),
			cond(v1.ContainersReady, v1.ConditionTrue, 9),
		},
	}, to)
	again := mergePodStatus(&to, own)
	assert.Equal(t, to, again)
	p, err := patch("uid", &to, &again)
	require.NoError(t, err)
	assert.Empty(t, p, "nothing to send")
}

func TestPhases(t *testing.T) {
	for _, c := range []struct{ known, own, want v1.PodPhase }{
		{"", v1.PodPending, v1.PodPending},
		{v1.PodPending, v1.PodFailed, v1.PodFailed},
		{v1.PodPending, v1.PodRunning, v1.PodRunning},
		{v1.PodRunning, v1.PodPending, v1.PodRunning},
		{v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded},
		{v1.PodSucceeded, v1.PodRunning, v1.PodSucceeded},
		{v1.PodFailed, v1.PodSucceeded, v1.PodFailed},
		{v1.PodFailed, v1.PodPending, v1.PodFailed},
		{v1.PodUnknown, v1.PodRunning, v1.PodRunning},
	} {
		to := mergePodStatus(&v1.PodStatus{Phase: c.known, Reason: "known"}, &v1.PodStatus{Phase: c.own, Reason: "own"})
		assert.Equal(t, c.want, to.Phase, "%s to %s", c.known, c.own)
		if c.want != c.own {
			assert.Equal(t, "known", to.Reason)
		}
	}
}

// The disruption of a pod by the node is sent with the final phase. Those of others stay.
func TestDisruption(t *testing.T) {
	ours := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
		Reason: v1.PodReasonTerminationByKubelet, Message: "evicted"}
	theirs := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"}
	list := func(c ...v1.PodCondition) []v1.PodCondition { return append([]v1.PodCondition{}, c...) }
	for name, c := range map[string]struct {
		known, own []v1.PodCondition
		phase      v1.PodPhase
		want       []v1.PodCondition
	}{
		"running":        {nil, list(ours), v1.PodRunning, list()},
		"ended":          {nil, list(ours), v1.PodFailed, list(ours)},
		"ended, theirs":  {list(theirs), list(ours), v1.PodFailed, list(ours)},
		"an old copy":    {list(theirs), list(v1.PodCondition{Type: v1.DisruptionTarget, Reason: "old"}), v1.PodFailed, list(theirs)},
		"none of ours":   {list(theirs), nil, v1.PodFailed, list(theirs)},
		"restored agent": {list(ours), nil, v1.PodFailed, list(ours)},
	} {
		to := mergePodStatus(&v1.PodStatus{Conditions: c.known}, &v1.PodStatus{Phase: c.phase, Conditions: c.own})
		assert.Equal(t, c.want, to.Conditions, name)
	}
}

// A patch changes nothing that it does not name, also what the server has and we have not seen.
func TestPatchKeepsWhatIsUnknown(t *testing.T) {
	known := &v1.PodStatus{Conditions: []v1.PodCondition{cond("a/known", v1.ConditionTrue, 1),
		cond(v1.PodReady, v1.ConditionFalse, 1), cond(v1.PodResizePending, v1.ConditionTrue, 1)}}
	own := &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue, 2)}}
	to := mergePodStatus(known, own)
	p, err := patch("uid", known, &to)
	require.NoError(t, err)
	assert.Contains(t, string(p), `"uid":"uid"`)
	assert.NotContains(t, string(p), "a/known\",\"status", "only what differs")

	server := v1.Pod{Status: *known.DeepCopy()}
	server.Status.Conditions = append(server.Status.Conditions, cond("b/new", v1.ConditionTrue, 1))
	server.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "new"}}
	before, _ := json.Marshal(server)
	after, err := strategicpatch.StrategicMergePatch(before, p, v1.Pod{})
	require.NoError(t, err)
	var got v1.Pod
	require.NoError(t, json.Unmarshal(after, &got))
	for _, want := range []v1.PodConditionType{"a/known", "b/new", v1.PodReady} {
		assert.NotNil(t, find(got.Status.Conditions, want), want)
	}
	assert.Nil(t, find(got.Status.Conditions, v1.PodResizePending), "ours, and not generated any more")
	assert.Len(t, got.Status.ResourceClaimStatuses, 1)
	assert.Equal(t, "10.0.0.1", got.Status.PodIP)
}

func TestSameOwn(t *testing.T) {
	a := &v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue, 1),
		cond("x", v1.ConditionTrue, 1), cond(v1.PodScheduled, v1.ConditionTrue, 1)}}
	b := &v1.PodStatus{Phase: v1.PodRunning, NominatedNodeName: "n",
		Conditions: []v1.PodCondition{cond(v1.PodScheduled, v1.ConditionTrue, 1),
			cond(v1.PodReady, v1.ConditionTrue, 1)}}
	assert.True(t, sameOwn(a, b))
	b.Conditions[1].Status = v1.ConditionFalse
	assert.False(t, sameOwn(a, b))
	b.Conditions = b.Conditions[:1]
	assert.False(t, sameOwn(a, b))
}

func TestUsableMirror(t *testing.T) {
	static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "hash",
		Labels: map[string]string{"a": "b"}}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](7)}}
	mirror := newMirror(static, "node", "node-uid")
	assert.Equal(t, int64(7), *mirror.Spec.TerminationGracePeriodSeconds)
	assert.Equal(t, "node", mirror.Spec.NodeName)
	assert.Equal(t, "b", mirror.Labels["a"])
	assert.Empty(t, mirror.UID)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "node", UID: "node-uid",
		Controller: ptr.To(true)}, mirror.OwnerReferences[0])
	own := &v1.PodStatus{Phase: v1.PodRunning}
	assert.True(t, usable(mirror, static, own))
	other := static.DeepCopy()
	other.UID = "hash-2"
	assert.False(t, usable(mirror, other, own))
	mirror.Status.Phase = v1.PodFailed
	assert.False(t, usable(mirror, static, own))
	assert.True(t, usable(mirror, static, &v1.PodStatus{Phase: v1.PodSucceeded}))
	mirror.Status.Phase = ""
	mirror.DeletionTimestamp = ptr.To(at(1))
	assert.False(t, usable(mirror, static, own))
}
