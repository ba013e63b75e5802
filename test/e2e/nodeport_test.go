package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The API server reaches the port of the node, with its own certificate and the permissions of
// system:kubelet-api-admin.
func TestPortOfTheNode(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	node, err := s.node()
	require.NoError(t, err)
	assert.NotZero(t, node.Status.DaemonEndpoints.KubeletEndpoint.Port)

	ns := s.plane.Namespace(t, "port")
	s.plane.Kubectl(t, "run", "web", "-n", ns, "--image", s.Registry.Image("busybox:1"), "--command", "--", "/bin/sh",
		"-c", "echo hello; "+Forever)
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod/web", "--timeout=180s")
	assert.Equal(t, "hello\n", s.plane.Kubectl(t, "logs", "-n", ns, "web"))
	assert.Equal(t, "ok", s.plane.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+NodeName+"/proxy/healthz"))
	assert.Contains(t, s.plane.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+NodeName+"/proxy/pods"), `"name":"web"`)
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=1")
}
