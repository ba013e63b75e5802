package node

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// MemoryPressure returns the condition with kubelet's reason and message.
func MemoryPressure(under bool) v1.NodeCondition {
	if under {
		return v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue,
			Reason: "KubeletHasInsufficientMemory", Message: "kubelet has insufficient memory available"}
	}
	return v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse,
		Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"}
}

// DiskPressure returns the condition with kubelet's reason and message.
func DiskPressure(under bool) v1.NodeCondition {
	if under {
		return v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue, Reason: "KubeletHasDiskPressure",
			Message: "kubelet has disk pressure"}
	}
	return v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
		Message: "kubelet has no disk pressure"}
}

// PIDPressure returns the condition with kubelet's reason and message.
func PIDPressure(under bool) v1.NodeCondition {
	if under {
		return v1.NodeCondition{Type: v1.NodePIDPressure, Status: v1.ConditionTrue, Reason: "KubeletHasInsufficientPID",
			Message: "kubelet has insufficient PID available"}
	}
	return v1.NodeCondition{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID",
		Message: "kubelet has sufficient PID available"}
}

// Ready returns the condition with kubelet's reason and message. The node is ready if all
// problems are nil.
func Ready(problems ...error) v1.NodeCondition {
	if err := utilerrors.NewAggregate(problems); err != nil { // kubelet's text of several errors
		return v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady",
			Message: strings.ReplaceAll(err.Error(), "\n", ", ")}
	}
	return v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status"}
}

// conditionEvents are kubelet's reasons of events about the conditions that become False and
// True. They are never changed.
var conditionEvents = map[v1.NodeConditionType][2]string{
	v1.NodeReady:          {"NodeNotReady", "NodeReady"},
	v1.NodeMemoryPressure: {"NodeHasSufficientMemory", "NodeHasInsufficientMemory"},
	v1.NodeDiskPressure:   {"NodeHasNoDiskPressure", "NodeHasDiskPressure"},
	v1.NodePIDPressure:    {"NodeHasSufficientPID", "NodeHasInsufficientPID"},
}

// condition returns the condition of the type; nil if there is none.
func condition(list []v1.NodeCondition, typ v1.NodeConditionType) *v1.NodeCondition {
	for i := range list {
		if list[i].Type == typ {
			return &list[i]
		}
	}
	return nil
}

// put sets a condition in place of the one with its type, or adds it.
func put(list []v1.NodeCondition, c v1.NodeCondition) []v1.NodeCondition {
	if old := condition(list, c.Type); old != nil {
		*old = c
		return list
	}
	return append(list, c)
}

// setConditions puts the observed conditions into the list of the node object, and sets their times.
// Conditions of others are kept. It returns the reasons of the events about conditions whose status
// has changed.
func setConditions(list, observed []v1.NodeCondition, now time.Time) (_ []v1.NodeCondition, events []string) {
	for _, c := range observed {
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		old := condition(list, c.Type)
		if old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		} else if reasons, ok := conditionEvents[c.Type]; ok && (old != nil || c.Type != v1.NodeReady) {
			reason := reasons[0]
			if c.Status == v1.ConditionTrue {
				reason = reasons[1]
			}
			events = append(events, reason)
		}
		list = put(list, c)
	}
	return list, events
}

// sameConditions compares conditions without their heartbeats, in any order.
func sameConditions(a, b []v1.NodeCondition) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x v1.NodeCondition) bool {
		y := condition(b, x.Type)
		return y == nil || x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message ||
			!x.LastTransitionTime.Equal(&y.LastTransitionTime)
	})
}
