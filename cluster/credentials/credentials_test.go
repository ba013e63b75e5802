package credentials

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, content string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, " +
		"user: u}}]\nclusters: [{name: k, cluster: {server: 'https://192.0.2.1:6443'}}]\n"
	for name, tc := range map[string]struct{ content, err string }{
		"a token":          {content: head + "users: [{name: u, user: {token: secret}}]\n"},
		"an exec plugin":   {content: head + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]\n"},
		"empty":            {err: "no configuration has been provided"},
		"not YAML":         {content: "{", err: "yaml"},
		"no such file":     {content: head + "users: [{name: u, user: {client-certificate: /no/cert, client-key: /no/key}}]\n", err: "/no/cert"},
		"no such context":  {content: "apiVersion: v1\nkind: Config\ncurrent-context: d\n", err: "context"},
		"no current one":   {content: "apiVersion: v1\nkind: Config\n", err: "no configuration"},
		"a binary garbage": {content: "\x00\x01", err: "control characters"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(dir, "kubelet.conf"), tc.content)
			c, err := Load("n", Options{Kubeconfig: path})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.ErrorContains(t, err, "kubeconfig "+path)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "https://192.0.2.1:6443", c.Config().Host)
		})
	}
	_, err := Load("", Options{})
	require.ErrorContains(t, err, "no node name")
	require.ErrorContains(t, err, "no kubeconfig")
	_, err = Load("n", Options{Kubeconfig: dir + "/missing"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, dir+"/missing")
}
