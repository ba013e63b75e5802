package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files and flags of a kubelet that do not name its runtime mean containerd, and never processes of the machine.
func TestRuntimeOfAKubelet(t *testing.T) {
	for name, tc := range map[string]struct {
		config   string
		program  Program
		args     []string
		endpoint string // "" for the embedded runtime
	}{
		"nothing is given":           {},
		"manifests":                  {args: []string{"--pod-manifest-path=/m", "--v=2", "--max-pods=7"}},
		"a configuration":            {config: header + "maxPods: 7\n", endpoint: defaultEndpoint},
		"as kubeadm writes it":       {config: header + "containerRuntimeEndpoint: \"\"\n", endpoint: defaultEndpoint},
		"a directory of files":       {args: []string{"--config-dir=" + t.TempDir()}, endpoint: defaultEndpoint},
		"a kubeconfig":               {args: []string{"--kubeconfig=/k"}, endpoint: defaultEndpoint},
		"a bootstrap kubeconfig":     {args: []string{"--bootstrap-kubeconfig=/b", "--kubeconfig=/k"}, endpoint: defaultEndpoint},
		"a flag of cgroups":          {args: []string{"--cgroup-driver=systemd"}, endpoint: defaultEndpoint},
		"a value of a program":       {program: Program{Configuration: map[string]any{"maxPods": 7}}, endpoint: defaultEndpoint},
		"an endpoint":                {config: header + "containerRuntimeEndpoint: unix:///run/x\n", endpoint: "unix:///run/x"},
		"the embedded, in a file":    {config: header + "containerRuntimeEndpoint: embedded\n"},
		"the embedded, by a flag":    {config: header + "containerRuntimeEndpoint: unix:///run/x\n", args: []string{embedded}},
		"a flag without a value":     {config: header + "maxPods: 7\n", args: []string{"--container-runtime-endpoint="}, endpoint: defaultEndpoint},
		"the embedded in the values": {program: Program{Configuration: map[string]any{"containerRuntimeEndpoint": "embedded"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.config != "" {
				path := t.TempDir() + "/kubelet.yaml"
				write(t, path, tc.config)
				tc.args = append(tc.args, "--config", path)
			}
			s, err := tc.program.Parse(append(tc.args, "--root-dir=/r"))
			require.NoError(t, err)
			assert.Equal(t, tc.endpoint, s.ContainerRuntimeEndpoint)
			assert.Equal(t, tc.endpoint == "", s.Embedded)
			assert.Equal(t, tc.endpoint != "", s.OnMachine())
		})
	}
}

// Every flag that needs a container runtime is one.
func TestRuntimeFlags(t *testing.T) {
	for _, name := range runtimeFlags() {
		assert.NotNil(t, program.Flags().Lookup(name), name)
	}
}
