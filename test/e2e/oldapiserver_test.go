package e2e

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// An API server has neither version of an API that a pod needs, and, if it is older, see [OldKubernetes], drops fields
// of each status: 1.35 those of declared features. That costs one line of the log, pods that do not need the API run,
// and an idle node does not repeat its reports.
func TestAPIServerWithoutAnAPI(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	plane := NewControlPlaneWith(t, c.Net, map[string][]string{"kube-apiserver": {"--runtime-config=" +
		"certificates.k8s.io/v1/clustertrustbundles=false,certificates.k8s.io/v1beta1/clustertrustbundles=false"}})
	c.Preload(t, "pause:1", "busybox:1")
	s := &nodeSuite{Cluster: c, plane: plane,
		agent: c.NewAgent(t, AgentOptions{Kubeconfig: plane.NodeKubeconfig(t, NodeName)})}
	s.start(t)
	namespace := plane.Namespace(t, "old")
	bundle := MakePod("bundle", Main(Sh("a", Forever)), Mounted("v", v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
			ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("named"), Path: "named.pem"}}}}}))
	s.create(t, namespace, MakePod("plain", Main(Sh("a", Forever))), bundle)
	s.await(t, namespace, "plain", Running, Ready(true))
	const message = "the API server does not have the API of ClusterTrustBundles"
	log := func() string {
		data, err := os.ReadFile(s.agent.LogPath())
		require.NoError(t, err)
		return string(data)
	}
	Eventually(t, within, "the agent has asked", func() error {
		if !strings.Contains(log(), message) {
			return assert.AnError
		}
		return nil
	})
	time.Sleep(15 * time.Second) // the reports after the start
	before, logged := plane.Audited(t), len(log())
	time.Sleep(time.Minute)
	calls := plane.Audited(t)
	for call, n := range before {
		calls[call] -= n
	}
	maps.DeleteFunc(calls, func(_ string, n int) bool { return n == 0 })
	lines := strings.Count(log()[logged:], "\n")
	t.Logf("in a minute: %v, %d lines of the log", calls, lines)
	assert.Equal(t, 1, strings.Count(log(), "Objects cannot be read from the API server"))
	assert.LessOrEqual(t, calls["patch nodes/status"], 1)
	assert.LessOrEqual(t, calls["patch pods/status"], 2)
	assert.LessOrEqual(t, calls["list clustertrustbundles"]+calls["watch clustertrustbundles"], 10)
	assert.LessOrEqual(t, calls["create events"]+calls["patch events"], 8, "those of the pod that waits")
	assert.LessOrEqual(t, lines, 30)
}
