package kubelet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The runtime is away, which does not keep the agent from asking what to run.
func TestManifestURL(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tokens := make(chan string, 1000)
	manifests := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("X-Token")
		if len(tokens) == 2 { // the first answer has been read
			cancel()
		}
		_, _ = io.WriteString(w, "[")
	}))
	defer manifests.Close()
	root := t.TempDir()
	t.Cleanup(func() { unmount(root) })
	config := filepath.Join(root, "config")
	write(t, config, header+"podLogsDir: logs\nhttpCheckFrequency: 1s\n")
	args := append(ownDirs(root), "--runonce", "--config", config, "--root-dir", root,
		"--container-runtime-endpoint", root+"/cri.sock")
	err := runKubelet(ctx, append(args, "--manifest-url", manifests.URL, "--manifest-url-header=x-token:secret"))
	require.NotEmpty(t, tokens)
	assert.Equal(t, "secret", <-tokens)
	require.ErrorContains(t, err, "manifest "+manifests.URL+": GET "+manifests.URL+": yaml: line 1")

	err = runKubelet(t.Context(), append(args, "--manifest-url=host/pods"))
	require.ErrorContains(t, err,
		`--manifest-url or staticPodURL: http source: URL "host/pods" must begin with http:// or https://`)
}
