package eviction

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Admit implements [lifecycle.Admitter] by kubelet's rule. Under memory pressure alone it refuses pods of the class
// BestEffort that do not tolerate its taint; under pressure on disk or processes it refuses all. Static pods, mirror
// pods and pods of a system's priority are always admitted, and so are resizes.
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	list := *m.pressure.Load()
	if len(list) == 0 || req.Held != nil || podspec.IsCritical(req.Pod) {
		return lifecycle.AdmitResponse{}, nil
	}
	if len(list) == 1 && list[0] == v1.NodeMemoryPressure {
		taint := &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if podspec.QOSClass(req.Pod) != v1.PodQOSBestEffort || corev1helpers.TolerationsTolerateTaint(logr.Discard(),
			req.Pod.Spec.Tolerations, taint, false) {
			return lifecycle.AdmitResponse{}, nil
		}
	}
	return lifecycle.AdmitResponse{}, lifecycle.Refuse(Reason, fmt.Sprintf("The node had condition: %v. ", list))
}
