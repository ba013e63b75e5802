package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// featureless is a runtime without optional interfaces.
type featureless struct{ runtime.Runtime }

func TestSecurityOfPods(t *testing.T) {
	withSysctl := func(name, sysctl string) *v1.Pod {
		pod := makePod(name)
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: sysctl, Value: "1"}}}
		return pod
	}
	strict := makePod("strict")
	strict.Spec.SecurityContext = &v1.PodSecurityContext{
		SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict)}
	for name, tc := range map[string]struct {
		change func(*kubeletkit.Options)
		want   map[string]string // the reasons of the refusals
	}{
		"default":        {func(*kubeletkit.Options) {}, map[string]string{"unsafe": "SysctlForbidden"}},
		"allowed":        {func(o *kubeletkit.Options) { o.Admission.AllowedUnsafeSysctls = []string{"net.core.*"} }, nil},
		"older runtimes": {func(o *kubeletkit.Options) { o.Runtime = featureless{o.Runtime} }, map[string]string{"unsafe": "SysctlForbidden", "strict": "SupplementalGroupsPolicyNotSupported"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNodeWith(t, t.TempDir(), fake.New(fake.Options{}), tc.change)
				defer n.stop(t)
				n.source.Set(withSysctl("safe", "net.ipv4.tcp_syncookies"), withSysctl("unsafe", "net.core.somaxconn"),
					strict)
				for name, pod := range n.after(5 * time.Second) {
					reason, refused := tc.want[name]
					assert.Equal(t, reason, pod.Status.Reason, name)
					if !refused {
						assert.Equal(t, v1.PodRunning, pod.Status.Phase, name)
					}
				}
			})
		})
	}
	_, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}), Host: &runtime.Host{},
		Admission: kubeletkit.Admission{AllowedUnsafeSysctls: []string{"vm.swappiness"}},
	})
	require.ErrorContains(t, err, "vm.swappiness")
}
