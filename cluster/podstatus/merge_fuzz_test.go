package podstatus

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/status"
)

// generated returns one of many statuses that an agent generates.
func generated(n uint32) v1.PodStatus {
	next := func(of uint32) uint32 {
		d := n % of
		n /= of
		return d
	}
	s := v1.PodStatus{Phase: []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed}[next(4)],
		ObservedGeneration: int64(next(3))}
	for _, t := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.PodResizePending,
		v1.DisruptionTarget} {
		switch next(3) {
		case 1:
			s.Conditions = append(s.Conditions, cond(t, v1.ConditionTrue, 1))
		case 2:
			s.Conditions = append(s.Conditions, cond(t, v1.ConditionFalse, 2))
		}
	}
	for _, ip := range []string{"10.0.0.1", "fd00::1"}[:next(3)] {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	for _, name := range []string{"a", "b"}[:next(3)] {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: name, RestartCount: int32(next(3))})
	}
	return s
}

// unique reports whether no two elements of the list have the same key.
func unique[T any](list []T, key func(T) string) bool {
	keys := sets.New[string]()
	for _, one := range list {
		keys.Insert(key(one))
	}
	return len(keys) == len(list)
}

// Whatever status a pod has in the API server, it is merged without a panic. If an API server can have it,
// the patch leads to the merged status, and keeps the conditions of others; and there is only one patch.
func FuzzMerge(f *testing.F) {
	f.Add(
		[]byte(
			`{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"a/b","status":"False"}]}`), uint32(1234567))
	f.Add(
		[]byte(
			`{"phase":"Failed","reason":"NodeLost","podIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"resourceClaimStatuses":[{"name":"c"}]}`), uint32(7654321))
	f.Add([]byte(`{"conditions":[{"type":"Ready"},{"type":"Ready"},null,{}],"podIPs":[{},{}],"hostIPs":[null]}`),
		uint32(1<<31))
	f.Add(
		[]byte(
			`{"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"1.5"},"state":{"running":{"startedAt":null}}}],"qosClass":"Burstable","startTime":"2026-01-01T00:00:00.5Z"}`), uint32(99))
	f.Fuzz(func(t *testing.T, data []byte, n uint32) {
		known, canonical, ok := apitest.Decode[v1.PodStatus](t, data)
		if !ok {
			return
		}
		own := generated(n)
		to := mergePodStatus(&known, &own)
		require.False(t, goesBack(known.Phase, to.Phase))
		p, err := patch("uid", &known, &to)
		if !unique(known.Conditions, func(c v1.PodCondition) string { return string(c.Type) }) ||
			!unique(known.PodIPs, func(ip v1.PodIP) string { return ip.IP }) ||
			!unique(known.HostIPs, func(ip v1.HostIP) string { return ip.IP }) ||
			!unique(known.ResourceClaimStatuses, func(c v1.PodResourceClaimStatus) string { return c.Name }) {
			return
		}
		require.NoError(t, err)
		got := known
		if p != nil {
			before, err := json.Marshal(v1.Pod{Status: known})
			require.NoError(t, err)
			after, err := strategicpatch.StrategicMergePatch(before, p, v1.Pod{})
			require.NoError(t, err, "%s", p)
			var pod v1.Pod
			require.NoError(t, json.Unmarshal(after, &pod))
			got = pod.Status
		}
		require.True(t, sameOwn(&got, &to), "the patch %s of %s leads to %v, want %v", p, canonical, got, to)
		for i := range known.Conditions {
			c := &known.Conditions[i]
			if !status.Owned(c.Type) && c.Type != v1.DisruptionTarget {
				require.True(t, equality.Semantic.DeepEqual(c, find(got.Conditions, c.Type)), "%s", p)
			}
		}
		again := mergePodStatus(&got, &own)
		p, err = patch("uid", &got, &again)
		require.NoError(t, err)
		require.Empty(t, string(p))
	})
}
