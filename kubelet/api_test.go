package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An agent without a cluster has the port for the API server when it has tokens of clients, with a
// certificate that signs itself.
func TestPortWithoutCluster(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { unmount(filepath.Join(dir, "root")) })
	tokens, roles := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "roles.yaml")
	write(t, tokens, "boss-token,boss,1,system:masters\nscraper-token,scraper,2\n")
	write(t, roles, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: scraper}]
`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	port, done := freePort(t), make(chan error, 1)
	go func() {
		done <- runKubelet(ctx, append(ownDirs(dir),
			"--root-dir", filepath.Join(dir, "root"), "--hostname-override=node",
			"--container-runtime-endpoint=unix://"+dir+"/cri.sock", "--healthz-port=0", "--allow-no-pods",
			"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--token-auth-file", tokens,
			"--authorization-rbac-file", roles,
		))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(token, path string) (code int, body string) {
		require.Eventually(t, func() bool {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet,
				fmt.Sprintf("https://127.0.0.1:%d%s", port, path), nil)
			require.NoError(t, err)
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				return false // it still starts
			}
			defer func() { _ = resp.Body.Close() }()
			data, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			code, body = resp.StatusCode, string(data)
			return true
		}, time.Minute, 10*time.Millisecond)
		return code, body
	}
	for _, tc := range []struct {
		token, path string
		code        int
		body        string
	}{
		{"", "/pods", 401, "Unauthorized"}, {"wrong", "/metrics", 401, "Unauthorized"},
		{"scraper-token", "/metrics", 200, "go_goroutines"}, {"scraper-token", "/pods", 403, "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"boss-token", "/pods", 200, `"kind":"PodList"`}, {"boss-token", "/healthz", 200, "ok"}, {"boss-token", "/configz", 200, fmt.Sprintf(`"port":%d`, port)},
		{"boss-token", "/flagz", 200, "\nhostname-override=node\n"}, {"boss-token", "/statusz", 200, "/runningpods"}, {"boss-token", "/debug/pprof/cmdline", 200, ""},
		{"boss-token", "/containerLogs/default/web/main", 404, `pod "web" does not exist`},
	} {
		code, body := ask(tc.token, tc.path)
		assert.Equal(t, tc.code, code, "%s: %s", tc.path, body)
		assert.Contains(t, body, tc.body, tc.path)
	}
	cancel()
	require.NoError(t, <-done)
}
