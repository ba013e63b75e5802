package podworkers

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiPod is a pod from an API server, with a grace period of 30 s.
func apiPod(uid types.UID, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: name, Namespace: "ns"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))},
	}
}

// staticPod is a pod from a file.
func staticPod(uid types.UID, name string) *v1.Pod {
	pod := apiPod(uid, name)
	pod.Annotations = map[string]string{runtime.AnnotationConfigSource: "file"}
	return pod
}

func with(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	pod = pod.DeepCopy()
	change(pod)
	return pod
}

func deleted(grace int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &grace
	}
}

func inPhase(phase v1.PodPhase) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.Phase = phase }
}

func orphan(uid types.UID, name string) *runtime.Pod {
	return &runtime.Pod{
		PodRef:     runtime.PodRef{UID: uid, Namespace: "ns", Name: name},
		Containers: []runtime.Container{{Name: "c", State: runtime.ContainerRunning}},
	}
}

func killIn(pod *v1.Pod, grace int64) Update {
	return Update{Type: Kill, Pod: pod, Kill: &KillOptions{GracePeriod: &grace}}
}
