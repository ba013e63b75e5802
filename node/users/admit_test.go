package users

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestAdmit(t *testing.T) {
	handlers := func(list ...runtime.Handler) func() runtime.Features {
		return func() runtime.Features { return runtime.Features{Handlers: append([]runtime.Handler{}, list...)} }
	}
	able := handlers(runtime.Handler{UserNamespaces: true}, runtime.Handler{Name: "kata"})
	for name, tc := range map[string]struct {
		features func() runtime.Features
		pod      func(*v1.PodSpec)
		record   bool
		lookup   error
		want     string
	}{
		"supported":               {features: able},
		"no features":             {},
		"not reported yet":        {features: func() runtime.Features { return runtime.Features{} }},
		"not supported":           {features: handlers(runtime.Handler{}), want: "UserNamespacesNotSupported: can't set `spec.hostUsers: false`, runtime does not support user namespaces"},
		"an old runtime":          {features: handlers(), want: "UserNamespacesNotSupported: can't set `spec.hostUsers: false`, runtime does not support user namespaces"},
		"not supported, has one":  {features: handlers(runtime.Handler{}), record: true},
		"of a class":              {features: able, pod: func(s *v1.PodSpec) { s.RuntimeClassName = new("vm") }, want: "UserNamespacesNotSupported: can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does not support user namespaces"},
		"of an unknown class":     {features: able, pod: func(s *v1.PodSpec) { s.RuntimeClassName = new("vm") }, lookup: errors.New("unknown")},
		"network of the host":     {features: able, pod: func(s *v1.PodSpec) { s.HostNetwork = true }, want: "UserNamespacesForbidden: spec.hostNetwork is forbidden when `hostUsers` is false"},
		"processes of the host":   {features: able, pod: func(s *v1.PodSpec) { s.HostPID = true }, want: "UserNamespacesForbidden: spec.hostPID is forbidden when `hostUsers` is false"},
		"IPC of the host":         {features: able, pod: func(s *v1.PodSpec) { s.HostIPC = true }, want: "UserNamespacesForbidden: spec.hostIPC is forbidden when `hostUsers` is false"},
		"block devices":           {features: able, pod: func(s *v1.PodSpec) { s.Containers[0].VolumeDevices = []v1.VolumeDevice{{}} }, want: "UserNamespacesForbidden: volumeDevices of container \"c\" is forbidden when `hostUsers` is false"},
		"shares users, all of it": {features: handlers(), pod: func(s *v1.PodSpec) { s.HostUsers, s.HostNetwork, s.HostPID, s.HostIPC = new(true), true, true, true }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.opts.Features = tc.features
			n.opts.RuntimeHandler = func(class string) (string, error) { return "kata", tc.lookup }
			if tc.record {
				n.record("a", damaged)
			}
			pod := podOf("a")
			if tc.pod != nil {
				tc.pod(&pod.Spec)
			}
			m := n.manager()
			_, err := m.Admit(lifecycle.AdmitRequest{Pod: pod})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var refusal *runtime.TerminalError
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, tc.want, refusal.Reason+": "+refusal.Message)
			_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod, Held: pod})
			require.NoError(t, err, "a resize is not refused for it")
		})
	}
}

// A pod that was admitted before the runtime was asked waits.
func TestUnsupportedLater(t *testing.T) {
	n := newNode(t)
	n.opts.Features = func() runtime.Features { return runtime.Features{Handlers: []runtime.Handler{{}}} }
	m := n.manager()
	_, err := n.prepare(m, "a", nil)
	require.EqualError(t, err, "user namespace of pod default/pod-a(a): can't set `spec.hostUsers: false`, runtime "+
		"does not support user namespaces")
	_, err = n.prepare(m, "b", runs(Range{Unit, Unit}))
	require.NoError(t, err, "it runs")
}
