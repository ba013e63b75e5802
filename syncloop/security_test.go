package syncloop_test

import (
	"errors"
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// The cases without a comment are those of kubelet's pkg/kubelet/sysctl/allowlist_test.go.
func TestAllowedUnsafeSysctls(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"kernel.msg*": true, "kernel.sem": true, "kernel/msg*": true, "kernel/sem": true,
		" kernel.msg*": false, "kernel.msg* ": false, "net.-": false, "net.*.foo": false, "net.*/foo": false, "foo": false, "foo*": false,
		"": false, "vm.swappiness": false, "*": false, // the node's own
	} {
		_, err := syncloop.NewSecurity(syncloop.SecurityOptions{AllowedUnsafeSysctls: []string{"net.b.*", pattern}})
		if ok {
			assert.NoError(t, err, pattern)
		} else {
			assert.ErrorContains(t, err, "sysctl", pattern)
		}
	}
}

func TestSysctls(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("there are no safe sysctls")
	}
	security, err := syncloop.NewSecurity(syncloop.SecurityOptions{AllowedUnsafeSysctls: []string{"kernel.msg*",
		"kernel.sem", "net.b.*", "user.*"}})
	require.NoError(t, err)
	const forbidden = "forbidden sysctl: "
	for _, tc := range []struct {
		name, kernel     string
		hostNet, hostIPC bool
		hostUsers        *bool
		want             string // the message of the refusal; "": admitted
	}{
		{name: "kernel.shm_rmid_forced"},
		{name: "kernel/shm_rmid_forced"},
		{name: "net.ipv4.ip_local_port_range"},
		{name: "kernel.msgmax"},
		{name: "kernel.sem"},
		{name: "kernel/sem"},
		{name: "kernel.shm_rmid_forced", hostIPC: true, want: `"kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{name: "net.ipv4.ip_local_port_range", hostNet: true, want: `"net.ipv4.ip_local_port_range" not allowed with host Net enabled`},
		{name: "foo", want: `"foo" not allowlisted`},
		{name: "net.a.b.c", want: `"net.a.b.c" not allowlisted`},
		{name: "net.ipv4.ip_local_port_range.a.b.c", want: `"net.ipv4.ip_local_port_range.a.b.c" not allowlisted`},
		{name: "kernel.msgmax", hostIPC: true, want: `"kernel.msgmax" not allowed with host IPC enabled`},
		{name: "kernel.sem", hostIPC: true, want: `"kernel.sem" not allowed with host IPC enabled`},
		{name: "net.b.c", hostNet: true, want: `"net.b.c" not allowed with host Net enabled`},
		{name: "user.max_user_namespaces", want: `"user.max_user_namespaces" not allowed with host User enabled`},
		{name: "user.max_user_namespaces", hostUsers: new(true), want: `"user.max_user_namespaces" not allowed with host User enabled`},
		{name: "user.max_user_namespaces", hostUsers: new(false)},
		// The versions of kubelet's safe_sysctls_test.go.
		{name: "net.ipv4.ip_local_reserved_ports", kernel: "3.16"},
		{name: "net.ipv4.ip_local_reserved_ports", kernel: "3.15.9", want: `"net.ipv4.ip_local_reserved_ports" not allowlisted`},
		{name: "net.ipv4.tcp_keepalive_time", kernel: "4.5.0-1-amd64"},
		{name: "net.ipv4.tcp_fin_timeout", kernel: "4.5.0-1-amd64", want: `"net.ipv4.tcp_fin_timeout" not allowlisted`},
		{name: "net.ipv4.tcp_wmem", kernel: "4.15"},
		{name: "net.ipv4.tcp_rmem", kernel: "4.14", want: `"net.ipv4.tcp_rmem" not allowlisted`},
		{name: "net.ipv4.tcp_slow_start_after_idle", kernel: "4.15"},
		{name: "net.ipv4.tcp_slow_start_after_idle", kernel: "4.14", want: `"net.ipv4.tcp_slow_start_after_idle" not allowlisted`},
		{name: "net.ipv4.tcp_notsent_lowat", kernel: "4.6"},
		{name: "net.ipv4.tcp_notsent_lowat", kernel: "4.5", want: `"net.ipv4.tcp_notsent_lowat" not allowlisted`},
		{name: "net.ipv4.tcp_rmem", kernel: "unknown", want: `"net.ipv4.tcp_rmem" not allowlisted`},
	} {
		pod := makePod("web")
		pod.Spec.HostNetwork, pod.Spec.HostIPC, pod.Spec.HostUsers = tc.hostNet, tc.hostIPC, tc.hostUsers
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: tc.name, Value: "1"}}}
		_, err := security.Admit(lifecycle.AdmitRequest{Pod: pod, Host: &runtime.Host{KernelRelease: tc.kernel}})
		if tc.want == "" {
			assert.NoError(t, err, "%+v", tc)
			continue
		}
		assertRefusal(t, err, "SysctlForbidden", forbidden+tc.want)
	}
}

func assertRefusal(t *testing.T, err error, reason, message string) {
	t.Helper()
	var refusal *runtime.TerminalError
	if assert.True(t, errors.As(err, &refusal), "%v", err) {
		assert.Equal(t, reason, refusal.Reason)
		assert.Equal(t, message, refusal.Message)
	}
}

func TestSupplementalGroupsPolicy(t *testing.T) {
	with := func(features func() runtime.Features, policy *v1.SupplementalGroupsPolicy) error {
		security, err := syncloop.NewSecurity(syncloop.SecurityOptions{Features: features})
		require.NoError(t, err)
		pod := makePod("web")
		pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: policy}
		_, err = security.Admit(lifecycle.AdmitRequest{Pod: pod})
		return err
	}
	no := func() runtime.Features { return runtime.Features{} }
	yes := func() runtime.Features { return runtime.Features{SupplementalGroupsPolicy: true} }
	strict, merge := ptr.To(v1.SupplementalGroupsPolicyStrict), ptr.To(v1.SupplementalGroupsPolicyMerge)
	const reason, message = "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not " +
		"supported in this node"
	assertRefusal(t, with(no, strict), reason, message)
	assertRefusal(t, with(nil, strict), reason, message)
	require.NoError(t, with(yes, strict))
	require.NoError(t, with(no, merge))
	require.NoError(t, with(no, nil))
}

func TestAppArmor(t *testing.T) {
	security, err := syncloop.NewSecurity(syncloop.SecurityOptions{})
	require.NoError(t, err)
	profile := func(kind v1.AppArmorProfileType, name *string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind, LocalhostProfile: name}
	}
	ofPod := func(p *v1.AppArmorProfile) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: p} }
	}
	annotation := func(value string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": value}
		}
	}
	const off, empty = "Cannot enforce AppArmor: AppArmor is not enabled on the host",
		`Cannot enforce AppArmor: invalid empty AppArmor profile name: " "`
	for name, tc := range map[string]struct {
		set                   func(*v1.Pod)
		wantWithout, wantWith string // the message of the refusal on a host without and with AppArmor; "": admitted
	}{
		"none":              {func(*v1.Pod) {}, "", ""},
		"default":           {ofPod(profile(v1.AppArmorProfileTypeRuntimeDefault, nil)), off, ""},
		"unconfined":        {ofPod(profile(v1.AppArmorProfileTypeUnconfined, nil)), "", ""},
		"local":             {ofPod(profile(v1.AppArmorProfileTypeLocalhost, ptr.To("web"))), off, ""},
		"local, no name":    {ofPod(profile(v1.AppArmorProfileTypeLocalhost, ptr.To(" "))), off, empty},
		"annotation":        {annotation("runtime/default"), off, ""},
		"annotation, local": {annotation("localhost/ "), off, empty},
		"annotation, none":  {annotation("unconfined"), "", ""},
		"container": {func(pod *v1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				AppArmorProfile: profile(v1.AppArmorProfileTypeRuntimeDefault, nil)}
		}, off, ""},
		"init container": {func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "i",
				SecurityContext: &v1.SecurityContext{AppArmorProfile: profile(v1.AppArmorProfileTypeRuntimeDefault,
					nil)}}}
		}, off, ""},
		"runs already": {func(pod *v1.Pod) {
			ofPod(profile(v1.AppArmorProfileTypeRuntimeDefault, nil))(pod)
			pod.Status.Phase = v1.PodRunning
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := makePod("web")
			tc.set(pod)
			for host, want := range map[*runtime.Host]string{nil: tc.wantWithout, {}: tc.wantWithout,
				{AppArmor: true}: tc.wantWith} {
				_, err := security.Admit(lifecycle.AdmitRequest{Pod: pod, Host: host})
				if want == "" {
					assert.NoError(t, err)
				} else {
					assertRefusal(t, err, "AppArmor", want)
				}
			}
		})
	}
}
