package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const providers = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.example.com"]
  defaultCacheDuration: 5m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

const providersWithTokens = providers + `  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: Token
    requireServiceAccount: true
`

func TestCredentialProviders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("executables have an extension")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	file := filepath.Join(dir, "providers.yaml")
	put := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	put(providersWithTokens)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	plugin := filepath.Join(dir, "bin", "ecr")
	require.NoError(t, os.WriteFile(plugin, nil, 0o755))
	config, bin := "--image-credential-provider-config=providers.yaml", "--image-credential-provider-bin-dir=bin"

	s, err := program.Parse([]string{config, bin, embedded})
	require.NoError(t, err)
	require.Len(t, s.Warnings, 1)
	assert.Contains(t, s.Warnings[0], "embedded runtime")
	s, err = program.Parse([]string{config, bin, "--container-runtime-endpoint=/run/cri.sock"})
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(s.Warnings, "\n"), "embedded runtime")
	assert.Equal(t, file, s.ImageCredentialProviderConfig)
	assert.Equal(t, filepath.Join(dir, "bin"), s.ImageCredentialProviderBinDir)
	got, ok, err := s.CredentialProviders()
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "ecr", got.Providers[0].Name)

	s, err = program.Parse(nil)
	require.NoError(t, err)
	_, ok, err = s.CredentialProviders()
	require.NoError(t, err)
	assert.False(t, ok)

	fails := func(want string, args ...string) {
		t.Helper()
		_, err := program.Parse(args)
		require.ErrorContains(t, err, want)
	}
	fails("--image-credential-provider-config: needs --image-credential-provider-bin-dir", config)
	fails("--image-credential-provider-bin-dir: needs --image-credential-provider-config", bin)
	fails("--image-credential-provider-config: stat ", "--image-credential-provider-config=absent", bin)
	fails("--image-credential-provider-bin-dir: directory of credential providers: ", config,
		"--image-credential-provider-bin-dir=absent")
	const gate = "KubeletServiceAccountTokenForCredentialProviders"
	fails(`provider "ecr" has tokenAttributes, and the feature gate `+gate+` is off`, config, bin,
		"--feature-gates="+gate+"=false")
	put(providers)
	_, err = program.Parse([]string{config, bin, "--feature-gates=" + gate + "=false"})
	require.NoError(t, err)
	put(providers + "  args: 5\n")
	fails("--image-credential-provider-config: "+file+": ", config, bin)
	put(providers[:len(providers)-len("/v1\n")] + "/v2\n")
	fails(`providers[ecr].apiVersion: Unsupported value: "credentialprovider.kubelet.k8s.io/v2"`, config, bin)
	put(providers)
	require.NoError(t, os.Chmod(plugin, 0o644))
	fails(`--image-credential-provider-bin-dir: credential provider "ecr": `, config, bin)
}
