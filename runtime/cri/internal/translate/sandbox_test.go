package translate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The sysctls of all pods are those of a namespace of the pod. Those of the pod win.
func TestSysctlsOfAllPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.PodSpec)
		want   map[string]string
	}{
		"own network and IPC": {func(*v1.PodSpec) {}, map[string]string{"net.core.somaxconn": "1", "kernel.msgmax": "2"}},
		"own users": {func(s *v1.PodSpec) { s.HostUsers, s.HostNetwork, s.HostIPC = new(false), true, true },
			map[string]string{"user.max_user_namespaces": "3"}},
		"of the host": {func(s *v1.PodSpec) { s.HostNetwork, s.HostIPC = true, true }, map[string]string{}},
		"of the pod": {func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/core/somaxconn", Value: "9"}}}
		}, map[string]string{"net.core.somaxconn": "9", "kernel.msgmax": "2"}},
	} {
		in := sample(func(c *Container) { tc.change(&c.Pod.Spec.Spec) }).Pod
		in.Edits.UserNamespace = &runtime.UserNamespace{}
		in.Node.PodSysctls = map[string]string{"net/core/somaxconn": "1", "kernel.msgmax": "2",
			"user.max_user_namespaces": "3", "kernel.msg_next_id": "4"}
		config, err := SandboxConfig(in, 0)
		require.NoError(t, err)
		assert.Equal(t, tc.want, config.GetLinux().GetSysctls(), name)
	}
}

func TestUserNamespaces(t *testing.T) {
	users := func(first uint32) (*runtime.UserNamespace, *criv1.UserNamespace) {
		return &runtime.UserNamespace{
				UIDs: []runtime.IDMapping{{HostID: first, Length: 65536}},
				GIDs: []runtime.IDMapping{{HostID: 2 * first, Length: 65536}},
			}, &criv1.UserNamespace{
				Mode: criv1.NamespaceMode_POD,
				Uids: []*criv1.IDMapping{{HostId: first, Length: 65536}},
				Gids: []*criv1.IDMapping{{HostId: 2 * first, Length: 65536}},
			}
	}
	in := sample(withMount(v1.VolumeMount{MountPath: "/data"}), func(c *Container) {
		c.Pod.Spec.Spec.HostUsers = new(false)
		c.HostsPath = "/pods/hosts"
		c.Edits.Mounts = []runtime.BindMount{{HostPath: "/lib/vendor"}}
	})
	const refused = "can't set `spec.hostUsers: false`, user namespaces are not supported"
	_, err := SandboxConfig(in.Pod, 0)
	assert.EqualError(t, err, refused)
	_, err = ContainerConfig(t.Context(), in)
	assert.EqualError(t, err, refused)

	var want *criv1.UserNamespace
	in.Pod.Edits.UserNamespace, want = users(65536)
	sandbox, err := SandboxConfig(in.Pod, 0)
	require.NoError(t, err)
	assert.Equal(t, want, sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions)
	for range 2 {
		config, err := ContainerConfig(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, want, config.Linux.SecurityContext.NamespaceOptions.UsernsOptions)
		require.Len(t, config.Mounts, 3)
		for _, m := range config.Mounts { // also the extra one
			assert.Equal(t, want.Uids, m.UidMappings)
			assert.Equal(t, want.Gids, m.GidMappings)
		}
		in.Edits.UserNamespace, want = users(131072) // wins
	}

	in.Pod.Spec.Spec.HostUsers = new(true)
	sandbox, err = SandboxConfig(in.Pod, 0)
	require.NoError(t, err)
	assert.Equal(t, &criv1.UserNamespace{Mode: criv1.NamespaceMode_NODE},
		sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions)
}

// A pod that no API server has defaulted has no security context.
func TestNamespacesWithoutSecurityContext(t *testing.T) {
	in := sample(func(c *Container) { c.Pod.Spec.Spec.HostPID = true })
	config, err := SandboxConfig(in.Pod, 0)
	require.NoError(t, err)
	assert.Equal(t, criv1.NamespaceMode_NODE, config.Linux.SecurityContext.NamespaceOptions.Pid)
}

func TestSandboxOptions(t *testing.T) {
	in := sample(func(c *Container) {
		c.Pod.CgroupParent = "/pods/1234"
		c.Pod.Groups = []int64{8}
		c.Pod.Spec.Spec.InitContainers = []v1.Container{{Name: "init",
			SecurityContext: &v1.SecurityContext{Privileged: new(true)}}}
	})
	config, err := SandboxConfig(in.Pod, 9)
	require.NoError(t, err)
	assert.Equal(t, uint32(9), config.Metadata.Attempt)
	assert.Equal(t, "/pods/1234", config.Linux.CgroupParent)
	assert.Equal(t, []int64{8}, config.Linux.SecurityContext.SupplementalGroups)
	assert.True(t, config.Linux.SecurityContext.Privileged, "any container counts")

	in.Pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{
		SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicy("Odd"))}
	_, err = SandboxConfig(in.Pod, 0)
	assert.EqualError(t, err, "unsupported supplementalGroupsPolicy: Odd")
}

func TestDNSWarnings(t *testing.T) {
	in := sample(func(c *Container) {
		c.Pod.Spec.Spec.DNSPolicy = "Odd"
		c.Pod.Host.IPs = []string{"2001:db8::1", "192.0.2.1"}
	}).Pod
	config, warnings := dns(in)
	assert.Equal(t, []string{"::1", "127.0.0.1"}, config.Servers, "a host without a resolver has only itself")
	assert.Equal(t, []Warning{
		{"InvalidDNSPolicy", `DNS policy "Odd" is unknown, "ClusterFirst" is used`},
		{"MissingClusterDNS", `pod: "web_shop(1234)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`},
	}, warnings)

	in.HostProcesses = true
	_, warnings = dns(in)
	assert.Len(t, warnings, 1, "processes of the machine have its resolver in any case")

	in.HostProcesses = false
	in.Spec.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	_, warnings = dns(in)
	assert.Len(t, warnings, 1, "the policy is the default, and no wish for a cluster")

	in.Spec.Spec.DNSPolicy, in.Host.IPs = v1.DNSDefault, nil
	config, warnings = dns(in)
	assert.Equal(t, []string{"127.0.0.1"}, config.Servers)
	assert.Empty(t, warnings)
}

// The output must not lead back into the inputs, which many pods share.
func TestDNSIsACopy(t *testing.T) {
	in := sample().Pod
	in.Host.ResolvConf = "/etc/resolv.conf"
	in.ResolvConf = ResolvConf{Nameservers: []string{"1.1.1.1"}, Searches: []string{"a", strings.Repeat("x", 254), "b"},
		Options: []string{"ndots:1"}}
	in.Spec.Spec.DNSConfig = &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("9")}}}
	config, _ := dns(in)
	assert.Equal(t, []string{"ndots:9"}, config.Options)
	assert.Equal(t, []string{"a", "b"}, config.Searches)
	slices.Reverse(config.Searches)
	config.Servers[0] = "changed"
	assert.Equal(t, ResolvConf{Nameservers: []string{"1.1.1.1"}, Searches: []string{"a", strings.Repeat("x", 254), "b"},
		Options: []string{"ndots:1"}}, in.ResolvConf)
}

func TestManyResolverOptions(t *testing.T) {
	in := sample().Pod
	in.Spec.Spec.DNSConfig = &v1.PodDNSConfig{}
	const n = 100_000
	for i := range 2 * n {
		in.Spec.Spec.DNSConfig.Options = append(in.Spec.Spec.DNSConfig.Options,
			v1.PodDNSConfigOption{Name: fmt.Sprintf("o%d", i%n), Value: new(fmt.Sprint(i))})
	}
	var config *criv1.DNSConfig
	took := testenv.CPUTime(t, func() { config, _ = dns(in) })
	assert.Less(t, took, 10*time.Second, "a quadratic cost takes minutes")
	assert.Equal(t, fmt.Sprintf("o%d:%d", n-1, 2*n-1), config.Options[len(config.Options)-1])
}

func TestRuntimeHandler(t *testing.T) {
	pod := &v1.Pod{}
	lookup := func(class string) (string, error) {
		if class == "gone" {
			return "", errors.New("no such class")
		}
		return class + "-handler", nil
	}
	for _, tc := range []struct {
		class        *string
		lookup       func(string) (string, error)
		want, errMsg string
	}{
		{nil, lookup, "", ""},
		{new(""), lookup, "", ""},
		{new("kata"), nil, "kata", ""},
		{new("kata"), lookup, "kata-handler", ""},
		{new("gone"), lookup, "", "no such class"},
	} {
		pod.Spec.RuntimeClassName = tc.class
		got, err := RuntimeHandler(pod, tc.lookup)
		assert.Equal(t, tc.want, got)
		if tc.errMsg != "" {
			assert.EqualError(t, err, tc.errMsg)
		} else {
			assert.NoError(t, err)
		}
	}
}
