package podworkers

import (
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiPod is a pod from an API server, with a grace period of 30 s.
func apiPod(uid types.UID, name string) *v1.Pod {
	return testpod.New(name, testpod.UID(uid), testpod.Grace(30))
}

// staticPod is a pod from a file.
func staticPod(uid types.UID, name string) *v1.Pod {
	return testpod.With(apiPod(uid, name), testpod.Static)
}

func orphan(uid types.UID, name string) *runtime.Pod {
	return &runtime.Pod{
		PodRef:     runtime.RefOf(apiPod(uid, name)),
		Containers: []runtime.Container{{Name: "c", State: runtime.ContainerRunning}},
	}
}
