package config

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// kubeadmConfig is what kubeadm init of 1.36 writes to /var/lib/kubelet/config.yaml on a machine
// with systemd-resolved (cmd/kubeadm/app/componentconfigs).
func kubeadmConfig() *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{
		TypeMeta:      metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		StaticPodPath: "/etc/kubernetes/manifests",
		ClusterDNS:    []string{"10.96.0.10"},
		ClusterDomain: "cluster.local",
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: "/etc/kubernetes/pki/ca.crt"},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
		},
		Authorization: kubeletconfig.KubeletAuthorization{
			Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		HealthzBindAddress:       "127.0.0.1",
		HealthzPort:              ptr.To[int32](10248),
		RotateCertificates:       true,
		CgroupDriver:             "systemd",
		ResolverConfig:           ptr.To("/run/systemd/resolve/resolv.conf"),
		ContainerRuntimeEndpoint: "unix:///var/run/containerd/containerd.sock",
	}
}

// kubeadmArgs are the flags of a kubelet of kubeadm's packages, beside those of kubeadm-flags.env.
var kubeadmArgs = []string{
	"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
	"--config=testdata/kubeadm/config.yaml",
}

// A default node of kubeadm has no warning when the agent starts.
func TestDefaultKubeadmNode(t *testing.T) {
	want, err := yaml.Marshal(kubeadmConfig())
	require.NoError(t, err)
	got, err := os.ReadFile("testdata/kubeadm/config.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	for name, more := range map[string][]string{
		"init":                     nil,
		"another name of the node": {"--hostname-override=node-1"},
		"join of a control plane":  {"--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule"},
		"before 1.36":              {"--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := program.Parse(append(more, kubeadmArgs...))
			require.NoError(t, err)
			assert.Empty(t, s.Warnings)
			for _, g := range s.Given {
				assert.Empty(t, g.Less, g.Name)
			}
			assert.True(t, *s.FailSwapOn && *s.FailCgroupV1 && *s.MakeIPTablesUtilChains)
		})
	}
}

func TestMachineSettings(t *testing.T) {
	s, err := parsed(t, header+"oomScoreAdj: -5\nmaxOpenFiles: 7\nfailSwapOn: false\nfailCgroupV1: false\n",
		"--container-runtime-endpoint=/run/cri.sock", "--oom-score-adj=-6", "--fail-cgroupv1")
	require.NoError(t, err)
	assert.EqualValues(t, -6, *s.OOMScoreAdj)
	assert.EqualValues(t, 7, s.MaxOpenFiles)
	assert.False(t, *s.FailSwapOn)
	assert.True(t, *s.FailCgroupV1)
	assert.Empty(t, s.Warnings)

	s, err = parsed(t, header+"maxOpenFiles: 7\n", embedded)
	require.NoError(t, err)
	assert.Nil(t, s.FailSwapOn, "the embedded runtime warns")
	require.Len(t, s.Warnings, 1)
	assert.Contains(t, s.Warnings[0], "maxOpenFiles has an effect only with")

	s, err = parsed(t, "", "--make-iptables-util-chains=false")
	require.NoError(t, err)
	assert.Equal(t, []string{"--make-iptables-util-chains: no effect without --kubeconfig"}, s.Warnings)

	assert.Equal(t, "NoSwap", s.MemorySwap.SwapBehavior)
	s, err = parsed(t, header+"memorySwap: {swapBehavior: LimitedSwap}\n")
	require.NoError(t, err)
	assert.Equal(t, "LimitedSwap", s.MemorySwap.SwapBehavior)
	assert.Empty(t, s.Warnings)
	_, err = parsed(t, header+"memorySwap: {swapBehavior: UnlimitedSwap}\n")
	require.ErrorContains(t, err, `memorySwap.swapBehavior "UnlimitedSwap": must be NoSwap or LimitedSwap`)

	_, err = parsed(t, header+"oomScoreAdj: -1001\nmaxOpenFiles: -1\n")
	require.ErrorContains(t, err, "oomScoreAdj -1001: must be between -1000 and 1000")
	require.ErrorContains(t, err, "maxOpenFiles -1: must not be negative")
}
