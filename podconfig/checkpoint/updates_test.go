package checkpoint_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

// updates are the updates of a pod that an API server permits (ValidatePodUpdate,
// ValidatePodEphemeralContainersUpdate, ValidatePodResize, ValidatePodBinding). Some set what a
// creation may not.
var updates = map[string]func(pod *v1.Pod, n int){
	"ephemeral container": func(pod *v1.Pod, n int) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: fmt.Sprint("debugger-", n), Image: "busybox", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath:   "/dev/termination-log",
				TerminationMessagePolicy: v1.TerminationMessageReadFile, Stdin: true, TTY: true,
				SecurityContext: &v1.SecurityContext{
					Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_PTRACE"}}},
			},
			TargetContainerName: pod.Spec.Containers[0].Name,
		})
	},
	"image": func(pod *v1.Pod, n int) { pod.Spec.Containers[0].Image = fmt.Sprint("app:", n) },
	"resize": func(pod *v1.Pod, n int) {
		list := v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(n), resource.DecimalSI)}
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	},
	"resize of the pod": func(pod *v1.Pod, n int) {
		pod.Spec.Resources = &v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}}
	},
	"deadline": func(pod *v1.Pod, n int) { pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(n)) },
	"toleration": func(pod *v1.Pod, n int) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{
			Key: fmt.Sprint("key-", n), Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
			TolerationSeconds: ptr.To(int64(-n)),
		})
	},
	"grace period": func(pod *v1.Pod, _ int) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) },
	"deletion": func(pod *v1.Pod, n int) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(int64(n), 0)},
			ptr.To(int64(n))
		pod.Finalizers = []string{"example.com/finalizer"}
	},
	"metadata": func(pod *v1.Pod, n int) {
		pod.Generation, pod.ResourceVersion = int64(n), fmt.Sprint(n)
		pod.Labels, pod.Annotations["example.com/note"] = map[string]string{"n": fmt.Sprint(n)}, "with\nlines"
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web",
			UID: "owner", Controller: ptr.To(true)}}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl",
			Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			Subresource: "ephemeralcontainers"}}
	},
	"status": func(pod *v1.Pod, n int) {
		pod.Status.NominatedNodeName, pod.Status.Resize, pod.Status.ObservedGeneration = "other",
			v1.PodResizeStatusDeferred, int64(n)
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue,
			Reason: v1.PodReasonDeferred}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c",
			AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "claim",
			ResourceClaimName: ptr.To("pod-claim")}}
	},
}

// TestUpdatedPodComesBack takes a pod through updates, and each state of it through a checkpoint.
func TestUpdatedPodComesBack(t *testing.T) {
	names := make([]string, 0, len(updates))
	for name := range updates {
		names = append(names, name)
	}
	var known logs
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		pod := makePod("web")
		for n, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 8).Draw(rt, "updates") {
			pod = pod.DeepCopy()
			updates[name](pod, n+1)
			life(t, dir, checkpoint.Options{Logger: known.logger()},
				func(s *checkpoint.Dir, _ []*v1.Pod) { s.Keep(pod) })
			life(t, dir, checkpoint.Options{Logger: known.logger()}, func(_ *checkpoint.Dir, restored []*v1.Pod) {
				require.Len(rt, restored, 1, "%s: %s", name, known.take())
				require.Equal(rt, len(pod.Spec.EphemeralContainers), len(restored[0].Spec.EphemeralContainers))
			})
		}
	})
}
