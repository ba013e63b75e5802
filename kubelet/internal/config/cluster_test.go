package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cluster/node"
)

func TestCluster(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config string
		args   []string
		check  func(t *testing.T, s *Settings)
	}{
		{"kubelet's defaults", "", []string{"--kubeconfig=/k"}, func(t *testing.T, s *Settings) {
			o := nodeOptions(t, s)
			assert.Equal(t, 10*time.Second, o.UpdateFrequency)
			assert.Equal(t, 5*time.Minute, o.ReportFrequency)
			assert.Equal(t, 40*time.Second, o.LeaseDuration)
			assert.False(t, o.NoRegister)
			assert.False(t, o.NoControllerAttach)
			assert.Equal(t, "100Mi", o.EvictionHard["memory.available"])
			assert.Equal(t, "application/vnd.kubernetes.protobuf", s.ContentType)
			assert.Equal(t, int32(50), *s.KubeAPIQPS)
			assert.Equal(t, int32(100), s.KubeAPIBurst)
			assert.Equal(t, int32(50), *s.NodeStatusMaxImages)
			assert.NotEmpty(t, s.CredentialsOptions().CertDir) // see TestKubeletPaths
			assert.False(t, s.CredentialsOptions().Rotate)
		}},
		{"what kubeadm gives", header + "rotateCertificates: true\nnodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 0s\nevictionPressureTransitionPeriod: 0s\n",
			[]string{"--bootstrap-kubeconfig=/b", "--kubeconfig=/k", "--node-ip=192.0.2.1", "--node-labels=",
				"--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule", "--provider-id=kind://x"},
			func(t *testing.T, s *Settings) {
				c := s.CredentialsOptions()
				assert.Equal(t, "/b", c.BootstrapKubeconfig)
				assert.True(t, c.Rotate)
				o := nodeOptions(t, s)
				assert.Equal(t,
					[]v1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: v1.TaintEffectNoSchedule}},
					o.Taints)
				assert.Equal(t, "kind://x", o.ProviderID)
				assert.Equal(t, "192.0.2.1", o.Addresses.(*node.HostAddresses).IPs[0].String())
			}},
		{"fields", header + "registerNode: false\nregisterWithTaints: [{key: a, value: b, effect: NoExecute}]\nproviderID: p\nnodeStatusUpdateFrequency: 4s\nnodeLeaseDurationSeconds: 20\nenableControllerAttachDetach: false\nnodeStatusMaxImages: -1\nevictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true\n",
			[]string{"--kubeconfig=/k"}, func(t *testing.T, s *Settings) {
				o := nodeOptions(t, s)
				assert.True(t, o.NoRegister)
				assert.True(t, o.NoControllerAttach)
				assert.Equal(t, 4*time.Second, o.UpdateFrequency)
				assert.Equal(t, 4*time.Second, o.ReportFrequency, "kubelet: it follows the other one")
				assert.Equal(t, 20*time.Second, o.LeaseDuration)
				assert.Equal(t, "5%", o.EvictionHard["memory.available"])
				assert.Equal(t, "10%", o.EvictionHard["nodefs.available"])
				assert.Equal(t, "a=b:NoExecute", o.Taints[0].ToString())
			}},
		{"flags over fields", header + "registerNode: true\nregisterWithTaints: [{key: a, value: b, effect: NoExecute}]\nevictionHard: {memory.available: 5%}\nkubeAPIQPS: 7\n",
			[]string{"--kubeconfig=/k", "--register-node=false", "--register-with-taints=c:NoSchedule",
				"--eviction-hard=nodefs.available<1Gi", "--kube-api-qps=9", "--kube-api-content-type=application/json",
				"--node-labels=a=b,c=d", "--node-labels=a=e"}, func(t *testing.T, s *Settings) {
				o := nodeOptions(t, s)
				assert.True(t, o.NoRegister)
				assert.Equal(t, "c:NoSchedule", o.Taints[0].ToString())
				assert.Equal(t, map[string]string{"nodefs.available": "1Gi"}, o.EvictionHard)
				assert.Equal(t, int32(9), *s.KubeAPIQPS)
				assert.Equal(t, "application/json", s.ContentType)
				assert.Equal(t, map[string]string{"a": "e", "c": "d"}, o.Labels)
			}},
		{"no volumes that are attached", header + "enableControllerAttachDetach: false\n", []string{"--kubeconfig=/k"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, []string{"enableControllerAttachDetach: no effect: no volume plugin has volumes that are " +
				"attached to the node"}, s.Warnings)
			fields, err := s.Effective(Detected{})
			require.NoError(t, err)
			assert.NotContains(t, fields, "enableControllerAttachDetach")
			p := Program{VolumePlugins: true}
			s, err = p.Parse([]string{"--config", s.ConfigFile, "--root-dir=/r", "--kubeconfig=/k"})
			require.NoError(t, err)
			assert.Empty(t, s.Warnings)
			assert.True(t, nodeOptions(t, s).NoControllerAttach)
			fields, err = s.Effective(Detected{})
			require.NoError(t, err)
			assert.Equal(t, false, fields["enableControllerAttachDetach"])
		}},
		{"the capacity of storage", header + "localStorageCapacityIsolation: false\n", []string{"--kubeconfig=/k"}, func(t *testing.T, s *Settings) {
			o := nodeOptions(t, s)
			assert.False(t, o.RequireStorage)
			capacity, allocatable, err := o.Info.(*node.Machine).NodeResources(t.Context())
			require.NoError(t, err)
			assert.NotContains(t, capacity, v1.ResourceEphemeralStorage)
			assert.NotContains(t, allocatable, v1.ResourceEphemeralStorage)
		}},
		{"a cloud provider", "", []string{"--kubeconfig=/k", "--cloud-provider=external", "--node-ip=192.0.2.1,2001:db8::1"}, func(t *testing.T, s *Settings) {
			o := nodeOptions(t, s)
			assert.True(t, o.ExternalCloudProvider)
			assert.Equal(t, "192.0.2.1,2001:db8::1", o.ProvidedIP)
		}},
		{"what is not enforced is said", header + "containerRuntimeEndpoint: embedded\nenforceNodeAllocatable: [pods]\nevictionHard: {memory.available: 5%}\n", nil, func(t *testing.T, s *Settings) {
			require.Len(t, s.Warnings, 1)
			assert.Contains(t, s.Warnings[0], "enforceNodeAllocatable: an effect only with a container runtime")
		}},
		{"no pods, as in kubelet", "", []string{"--max-pods=0"}, func(t *testing.T, s *Settings) {
			machine, ok := nodeOptions(t, s).Info.(*node.Machine)
			require.True(t, ok)
			capacity, _, err := machine.NodeResources(t.Context())
			require.NoError(t, err)
			assert.Zero(t, capacity.Pods().Value())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, tc.config, tc.args...)
			require.NoError(t, err)
			tc.check(t, s)
		})
	}
}

func nodeOptions(t *testing.T, s *Settings) node.Options {
	t.Helper()
	o, err := s.NodeOptions()
	require.NoError(t, err)
	_, err = node.New(nil, "n", o)
	require.EqualError(t, err, "node: no client", "nothing else is wrong")
	return o
}

func TestClusterSettingsThatAreWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		args   []string
		want   string
	}{
		"a label of others":    {args: []string{"--node-labels=node-role.kubernetes.io/master="}, want: "may not give itself"},
		"no label":             {args: []string{"--node-labels=a b=c"}, want: "--node-labels"},
		"taint without effect": {args: []string{"--register-with-taints=a=b"}, want: "effect"},
		"taint twice":          {args: []string{"--register-with-taints=a=b:NoExecute,a=c:NoExecute"}, want: "another one"},
		"taint of the file":    {config: header + "registerWithTaints: [{key: 'a b', effect: X}]\n", want: "registerWithTaints"},
		"addresses":            {args: []string{"--node-ip=192.0.2.1,192.0.2.2"}, want: "different families"},
		"provider":             {args: []string{"--cloud-provider=aws"}, want: "--cloud-provider"},
		"bootstrap alone":      {args: []string{"--bootstrap-kubeconfig=/b"}, want: "--kubeconfig"},
		"threshold":            {args: []string{"--eviction-hard=memory.available<lots"}, want: "evictionHard memory.available"},
		"lease":                {config: header + "nodeLeaseDurationSeconds: -1\n", want: "nodeLeaseDurationSeconds"},
		"images":               {args: []string{"--node-status-max-images=-2"}, want: "nodeStatusMaxImages"},
		"content type":         {config: header + "contentType: text/html\n", want: "contentType"},
		"rate":                 {config: header + "kubeAPIQPS: -1\n", want: "kubeAPIQPS"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsed(t, tc.config, tc.args...)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
