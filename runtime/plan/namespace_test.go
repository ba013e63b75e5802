package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestSandboxOfOtherNamespacesIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.PodSpec)
		has    runtime.SandboxStatus
		again  bool
	}{
		"as asked for":        {func(*v1.PodSpec) {}, runtime.SandboxStatus{PID: podspec.PIDContainer}, false},
		"the runtime is mute": {func(s *v1.PodSpec) { s.HostPID, s.HostIPC = true, true }, runtime.SandboxStatus{}, false},
		"host processes":      {func(s *v1.PodSpec) { s.HostPID = true }, runtime.SandboxStatus{PID: podspec.PIDContainer}, true},
		"shared processes":    {func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr.To(true) }, runtime.SandboxStatus{PID: podspec.PIDContainer}, true},
		"shared as asked for": {func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr.To(true) }, runtime.SandboxStatus{PID: podspec.PIDPod}, false},
		"host IPC":            {func(s *v1.PodSpec) { s.HostIPC = true }, runtime.SandboxStatus{PID: podspec.PIDContainer}, true},
		"host IPC no more":    {func(*v1.PodSpec) {}, runtime.SandboxStatus{PID: podspec.PIDContainer, HostIPC: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways,
				Containers: []v1.Container{{Name: "m"}}}}
			tc.change(&pod.Spec)
			sandbox := tc.has
			sandbox.ID, sandbox.State, sandbox.IPs = "s", runtime.SandboxReady, []string{"10.0.0.1"}
			got := plan.Compute(plan.Input{Pod: pod,
				Status: &runtime.PodStatus{Sandboxes: []runtime.SandboxStatus{sandbox}}, Now: time.Now()})
			assert.Equal(t, tc.again, got.CreateSandbox)
			assert.Equal(t, tc.again, got.KillPod)
		})
	}
}
