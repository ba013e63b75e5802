package podstatus

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/status"
)

// drawStatus draws a status. own is true for one that the agent has generated: it has no
// conditions of others.
func drawStatus(rt *rapid.T, name string, own bool) v1.PodStatus {
	types := []v1.PodConditionType{v1.PodReady, v1.PodScheduled, v1.ContainersReady, v1.PodResizePending}
	if !own {
		types = append(types, "a/foreign", "b/foreign", v1.DisruptionTarget)
	}
	s := v1.PodStatus{
		Phase: rapid.SampledFrom([]v1.PodPhase{"", v1.PodPending, v1.PodRunning, v1.PodSucceeded,
			v1.PodFailed}).Draw(rt, name+" phase"),
		Reason:             rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, name+" reason"),
		ObservedGeneration: rapid.Int64Range(0, 3).Draw(rt, name+" generation"),
	}
	for _, t := range rapid.Permutation(types).Draw(rt, name+" order") {
		if rapid.Bool().Draw(rt, fmt.Sprint(name, " ", t)) {
			s.Conditions = append(s.Conditions,
				cond(t, rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse}).Draw(rt, "status"),
					rapid.IntRange(1, 9).Draw(rt, "time")))
		}
	}
	for _, ip := range rapid.SliceOfNDistinct(rapid.IntRange(1, 4), 0, 2, rapid.ID).Draw(rt, name+" IPs") {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: fmt.Sprint("10.0.0.", ip)})
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	for i := range rapid.IntRange(0, 3).Draw(rt, name+" containers") {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: fmt.Sprint("c", i),
			Ready: rapid.Bool().Draw(rt, "ready")})
	}
	return s
}

// A patch that was made for the known status leads to the merged one, and changes nothing of
// others, also if they have written meanwhile.
func TestPatchModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		known, own := drawStatus(rt, "known", false), drawStatus(rt, "own", true)
		to := mergePodStatus(&known, &own)
		if again := mergePodStatus(&to, &own); !sameOwn(&again, &to) {
			rt.Fatalf("the merge of a merged status differs:\n%v\n%v", to, again)
		}
		server := *known.DeepCopy()
		server.NominatedNodeName = rapid.SampledFrom([]string{"", "other"}).Draw(rt, "nominated")
		if rapid.Bool().Draw(rt, "new condition") {
			server.Conditions = append(server.Conditions, cond("c/foreign", v1.ConditionTrue, 1))
		}
		got := server
		data, err := patch("uid", &known, &to)
		if err != nil {
			rt.Fatal(err)
		}
		if data != nil {
			before, _ := json.Marshal(v1.Pod{Status: server})
			after, err := strategicpatch.StrategicMergePatch(before, data, v1.Pod{})
			if err != nil {
				rt.Fatalf("%s: %v", data, err)
			}
			var pod v1.Pod
			if err := json.Unmarshal(after, &pod); err != nil {
				rt.Fatal(err)
			}
			got = pod.Status
		}
		if !sameOwn(&got, &to) {
			rt.Fatalf("the patch\n%s\nof\n%v\nleads to\n%v\nwant\n%v", data, server, got, to)
		}
		if got.NominatedNodeName != server.NominatedNodeName {
			rt.Fatalf("the patch changes the nominated node: %s", data)
		}
		for i := range server.Conditions {
			c := &server.Conditions[i]
			if now := find(got.Conditions, c.Type); !status.Owned(c.Type) &&
				(now == nil || !equality.Semantic.DeepEqual(now, c)) {
				rt.Fatalf("the patch changes the foreign condition %s to %v:\n%s", c.Type, now, data)
			}
		}
	})
}
