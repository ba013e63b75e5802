package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// conformanceSpecs are specs of NodeConformance that this agent once failed, by their names.
var conformanceSpecs = []string{
	"mirror pod: update activeDeadlineSeconds",
	"mirror pod: update container image",
	"mirror pod: update initContainer image",
	"should successfully recreate when file is removed and recreated",
	"should terminate sidecars simultaneously if prestop doesn't exit",
	"should print log to correct log path",
	"should accept recursive read-only mounts",
}

// The node tests of Kubernetes, of which these specs run, start no kubelet: this agent is the node.
func TestNodeConformance(t *testing.T) {
	t.Parallel()
	Need(t)
	// The root directory is not on a shared mount.
	c := NewClusterWith(t, ClusterOptions{OwnDirs: []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers"}, Propagation: "rprivate"})
	c.AddNodeIP(t)
	c.Preload(t, "pause:1")
	tests := c.StartNodeTests(t, conformanceSpecs...)
	agent := c.NewAgent(t, AgentOptions{
		Kubeconfig: tests.Kubeconfig, Args: []string{"--root-dir", "/var/lib/kubelet"},
		Config: map[string]any{
			"port": 10250, "readOnlyPort": 10255, "podLogsDir": "/var/log/pods", "healthzPort": 10248,
			"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
			"authorization":  map[string]any{"mode": "AlwaysAllow"},
		},
	})
	agent.Start(t)
	out := tests.Wait(t, 6*time.Minute)
	passed := fmt.Sprintf(" %d Passed | 0 Failed ", len(conformanceSpecs))
	assert.True(t, strings.Contains(out, passed), "%s", out[max(0, len(out)-6000):])
}
