package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is the program of the tests.
var program = Program{Name: "minikubelet", Getenv: os.Getenv}

// Nothing of an empty KubeletConfiguration is given.
func TestUnset(t *testing.T) {
	var into KubeletConfiguration
	var m merged
	require.NoError(t, m.addValue(kubeletconfig.KubeletConfiguration{}))
	require.NoError(t, m.decode(&into))
	assert.Empty(t, m.given)
	assert.Empty(t, m.content)
	assert.Equal(t, KubeletConfiguration{}, into)
}

func TestConfigurationOfTheProgram(t *testing.T) {
	c := kubeletconfig.KubeletConfiguration{MaxPods: 30, HealthzPort: ptr.To[int32](0), ClusterDomain: "edge.example",
		EnableServer: ptr.To(false), ShutdownGracePeriod: metav1.Duration{Duration: time.Minute}}
	p := Program{Configuration: &c}
	s, err := p.Parse([]string{"--root-dir=/r", "--max-pods=40"})
	require.NoError(t, err)
	assert.EqualValues(t, 40, s.MaxPods, "a flag wins")
	assert.Equal(t, "edge.example", s.ClusterDomain)
	assert.Zero(t, *s.HealthzPort)
	assert.False(t, *s.EnableServer)
	assert.Equal(t, time.Minute, s.ShutdownGracePeriod.Duration)
	plain, err := Program{}.Parse([]string{"--root-dir=/r"})
	require.NoError(t, err)
	assert.Equal(t, plain.SyncFrequency, s.SyncFrequency, "what is empty has kubelet's default")
	assert.Equal(t, plain.Logging, s.Logging)

	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kind: KubeletConfiguration\napiVersion: "+apiVersion+
		"\nclusterDomain: other.example\n"), 0o600))
	s, err = p.Parse([]string{"--root-dir=/r", "--config", file})
	require.NoError(t, err)
	assert.Equal(t, "other.example", s.ClusterDomain, "a file wins")
	assert.EqualValues(t, 30, s.MaxPods)

	content := map[string]any{"resolvConf": "", "staticPodPath": "manifests",
		"evictionSoft":            map[string]any{"memory.available": "1Gi"},
		"evictionSoftGracePeriod": map[string]any{"memory.available": "0s"}, "imageMaximumGCAge": "0s"}
	s, err = Program{Configuration: content}.Parse([]string{"--root-dir=/r", "--config", file})
	require.NoError(t, err)
	assert.Equal(t, ptr.To(""), s.ResolverConfig, "an empty value is one")
	assert.Equal(t, map[string]string{"memory.available": "0s"}, s.EvictionSoftGracePeriod)
	dir, err := filepath.Abs("manifests")
	require.NoError(t, err)
	assert.Equal(t, dir, s.StaticPodPath, "relative to the working directory, not to that of the file")

	for _, wrong := range []any{map[string]any{"maxPds": 1}, map[string]any{"maxPods": "x"}, "text", func() {}} {
		_, err = Program{Configuration: wrong}.Parse([]string{"--root-dir=/r"})
		assert.ErrorContains(t, err, "configuration of the program", "%v", wrong)
	}
}
