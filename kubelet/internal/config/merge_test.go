package config

import (
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// parsedFiles runs parse over a configuration and a drop-in.
func parsedFiles(t *testing.T, config, dropIn string, args ...string) (*Settings, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "10.conf"), header+dropIn)
	return parsed(t, header+config, append([]string{"--config-dir", dir, "--container-runtime-endpoint=/run/cri.sock",
		"--kubeconfig=/k"}, args...)...)
}

// A drop-in is a JSON merge patch.
func TestDropInPatches(t *testing.T) {
	for _, tc := range []struct {
		name, config, dropIn string
		check                func(t *testing.T, s *Settings)
	}{
		{"a list of structs is replaced", "registerWithTaints: [{key: a, value: x, effect: NoExecute}]\n",
			"registerWithTaints: [{key: b, effect: NoSchedule}]\n", func(t *testing.T, s *Settings) {
				assert.Equal(t, []v1.Taint{{Key: "b", Effect: v1.TaintEffectNoSchedule}}, s.RegisterWithTaints)
			}},
		{"and the maps in it", "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 1, limits: {memory: 1Gi, " +
			"hugepages-1Gi: 1Gi}}]\n", "reservedMemory: [{limits: {memory: 2Gi}}]\n", func(t *testing.T, s *Settings) {
			assert.Equal(t, []MemoryReservation{{Limits: v1.ResourceList{"memory": resource.MustParse("2Gi")}}},
				s.ReservedMemory)
		}},
		{"an empty list replaces", "registerWithTaints: [{key: a, effect: NoExecute}]\n", "registerWithTaints: []\n",
			func(t *testing.T, s *Settings) { assert.Empty(t, s.RegisterWithTaints) }},
		{"maps and structs are merged", "systemReserved: {cpu: 100m, memory: 1Gi}\nauthentication: {webhook: " +
			"{enabled: false, cacheTTL: 7s}}\n", "systemReserved: {memory: null, pid: \"9\"}\nauthentication: {webhook: " +
			"{enabled: true}}\n", func(t *testing.T, s *Settings) {
			assert.Equal(t, map[string]string{"cpu": "100m", "pid": "9"}, s.SystemReserved)
			assert.True(t, *s.Authentication.Webhook.Enabled)
			assert.Equal(t, 7*time.Second, s.Authentication.Webhook.CacheTTL.Duration)
		}},
		{"null is the default", "maxPods: 7\nlogging: {verbosity: 3}\nport: 1\nvolumePluginDir: /x\n",
			"maxPods: null\nlogging: {verbosity: null}\nport: null\nvolumePluginDir: null\n",
			func(t *testing.T, s *Settings) {
				assert.EqualValues(t, 110, s.MaxPods)
				assert.Zero(t, s.Verbosity)
				assert.False(t, s.Has("maxPods", "logging.verbosity", "port", "volumePluginDir"))
				assert.Empty(t, s.Warnings)
			}},
		{"a large number", "podPidsLimit: 9223372036854775807\n", "", func(t *testing.T, s *Settings) {
			assert.EqualValues(t, 9223372036854775807, *s.PodPidsLimit)
		}},
		{"paths", "staticPodPath: m\nresolvConf: c\nauthentication: {x509: {clientCAFile: ca}}\n",
			"staticPodPath: other\nauthentication: {x509: {clientCAFile: da}}\n", func(t *testing.T, s *Settings) {
				wd, err := os.Getwd()
				require.NoError(t, err)
				assert.Equal(t, filepath.Join(filepath.Dir(s.ConfigFile), "c"), *s.ResolverConfig)
				assert.Equal(t, filepath.Join(wd, "other"), s.StaticPodPath)
				assert.Equal(t, filepath.Join(wd, "da"), s.Authentication.X509.ClientCAFile)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsedFiles(t, tc.config, tc.dropIn)
			require.NoError(t, err)
			tc.check(t, s)
		})
	}
}

// A file patches the configuration of the program, too.
func TestFilePatchesTheProgram(t *testing.T) {
	p := Program{Configuration: kubeletconfig.KubeletConfiguration{MaxPods: 7, RegisterWithTaints: []v1.Taint{
		{Key: "a", Value: "x", Effect: v1.TaintEffectNoExecute}}}}
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	write(t, path, header+"registerWithTaints: [{key: b, effect: NoSchedule}]\nmaxPods: null\n")
	s, err := p.Parse([]string{"--config", path, "--kubeconfig=/k", "--root-dir=/r"})
	require.NoError(t, err)
	assert.Equal(t, []v1.Taint{{Key: "b", Effect: v1.TaintEffectNoSchedule}}, s.RegisterWithTaints)
	assert.EqualValues(t, 110, s.MaxPods)
}

// The examples of RFC 7396, appendix A, in which target and patch are objects.
func TestMergePatch(t *testing.T) {
	for _, tc := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		var target, patch map[string]any
		require.NoError(t, stdjson.Unmarshal([]byte(tc[0]), &target))
		require.NoError(t, stdjson.Unmarshal([]byte(tc[1]), &patch))
		got, err := stdjson.Marshal(mergePatch(target, patch))
		require.NoError(t, err)
		assert.JSONEq(t, tc[2], string(got), "%s and %s", tc[0], tc[1])
	}
}
