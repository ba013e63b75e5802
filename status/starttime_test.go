package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// The start time is when an agent first saw the pod, and the next agent finds it
// on the sandbox.
func TestStartTimeSurvivesTheAgent(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	seen := func(after time.Duration) map[string]string {
		return map[string]string{podspec.AnnotationConfigSeen: noon.Add(after).Format(time.RFC3339Nano)}
	}
	pod := podOf(v1.RestartPolicyAlways, "app")
	pod.Annotations = seen(0)
	first := status.Generate(status.Input{Pod: pod, Runtime: &runtime.PodStatus{}, Now: noon.Add(3 * time.Second)})
	assert.True(t, noon.Equal(first.StartTime.Time), first.StartTime)

	held := &runtime.PodStatus{Sandboxes: []runtime.SandboxStatus{{
		Sandbox:     runtime.Sandbox{ID: "s", State: runtime.SandboxReady, CreatedAt: noon.Add(5 * time.Second)},
		Annotations: seen(0),
	}}}
	adopted := podOf(v1.RestartPolicyAlways, "app")
	adopted.Annotations = seen(time.Hour)
	second := status.Generate(status.Input{Pod: adopted, Runtime: held, Now: noon.Add(2 * time.Hour)})
	assert.True(t, noon.Equal(second.StartTime.Time), second.StartTime)

	held.Sandboxes[0].Annotations = map[string]string{podspec.AnnotationConfigSeen: "yesterday"}
	third := status.Generate(status.Input{Pod: adopted, Runtime: held, Now: noon.Add(2 * time.Hour)})
	assert.True(t, noon.Add(5*time.Second).Equal(third.StartTime.Time), "an unreadable annotation does not count")
}
