package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// With a kubeconfig, the agents register as nodes and run the pods that are bound to them.
func TestFleet(t *testing.T) {
	server := apitest.New()
	const nodes, pods = 3, 2
	for n := range nodes {
		for i := range pods {
			pod := makePod(fmt.Sprintf("hollow-%d", n), i)
			pod.Name = fmt.Sprintf("%s-%d", pod.Spec.NodeName, i)
			pod.Spec.RestartPolicy = v1.RestartPolicyAlways
			server.Create(pod)
		}
	}
	web := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: server})
	defer web.Close()
	defer web.CloseClientConnections()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"c": {Server: web.URL}},
		Contexts:       map[string]*api.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, kubeconfig))

	ctx, cancel := context.WithCancel(t.Context())
	var out testenv.Output
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, &out, settings{agents: nodes, pods: pods, kubeconfig: kubeconfig, stay: time.Hour})
	}()
	assert.Eventually(t, func() bool {
		ready, running := 0, 0
		for n := range nodes {
			name := fmt.Sprintf("hollow-%d", n)
			node, registered := server.Object("nodes", "", name).(*v1.Node)
			if registered && node.Labels["hollow"] == "true" && slices.ContainsFunc(node.Status.Conditions,
				func(c v1.NodeCondition) bool {
					return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
				}) {
				ready++
			}
			for i := range pods {
				if server.Get("default", fmt.Sprintf("%s-%d", name, i)).Status.Phase == v1.PodRunning {
					running++
				}
			}
		}
		return ready == nodes && running == nodes*pods && strings.Contains(out.String(), "3 nodes are ready after ") &&
			strings.Contains(out.String(), "3 agents with 2 pods each: all pods running after ")
	}, 2*time.Minute, 50*time.Millisecond, "the API server has all nodes as ready and all pods as running, and so "+
		"has the report")
	cancel()
	require.NoError(t, <-done)
	for n := range nodes { // so that the next fleet does not wait for the ends of these leases
		name := fmt.Sprintf("hollow-%d", n)
		lease := server.Object("leases", v1.NamespaceNodeLease, name).(*coordinationv1.Lease)
		assert.Equal(t, "//"+name, lease.Annotations[node.IdentityAnnotation])
	}
}

func TestMissingKubeconfig(t *testing.T) {
	err := run(t.Context(), &bytes.Buffer{}, settings{agents: 1, kubeconfig: filepath.Join(t.TempDir(), "nowhere")})
	require.ErrorContains(t, err, "--kubeconfig")
}
