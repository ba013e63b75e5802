//go:build unix

package credentials

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A kubeconfig may have a plugin that prints credentials. It is run when they are needed, and again
// when the server refuses them; no certificate is requested.
func TestExecPlugin(t *testing.T) {
	s := newServer(t)
	count := write(t, s.path("count"), "1")
	script := write(t, s.path("plugin"), fmt.Sprintf(`n=$(cat %[1]q)
echo $((n+1)) > %[1]q
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"plugin-'$n'"}}'
`, count))
	opts := Options{CertDir: s.path("pki"), Rotate: true}
	opts.Kubeconfig = s.kubeconfig("kubelet.conf", fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/v1, "+
		"command: /bin/sh, args: [%q], interactiveMode: Never}", script))
	r := run(t, opts)
	for range 3 {
		assert.Equal(t, "plugin-1", whoami(t, r.c), "it is not run for each request")
	}
	s.set(func() { s.refused = "plugin-1" })
	assert.Equal(t, "refused\n", whoami(t, r.c))
	assert.Equal(t, "plugin-2", whoami(t, r.c))
	assert.Empty(t, s.signed())
	r.stop()
}
