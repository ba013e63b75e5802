package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// readyNow is a container with a readiness probe that succeeds.
func readyNow(name string) v1.Container {
	c := Sh(name, Forever)
	c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 5, InitialDelaySeconds: 5, TimeoutSeconds: 60}
	return c
}

// watchReadiness watches the pods of the namespace until the function that it returns is
// called. That returns the pods that became unready.
func (s *nodeSuite) watchReadiness(t *testing.T, namespace string) (flaps func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watch := s.plane.WatchPods(t, ctx, namespace)
	was, seen, done := map[string]bool{}, []string(nil), make(chan struct{})
	go func() {
		defer close(done)
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*v1.Pod)
			if !ok {
				if ctx.Err() == nil {
					seen = append(seen, fmt.Sprintf("the watch has failed: %+v", event.Object))
				}
				return
			}
			ready := Ready(true)(pod) == nil
			if was[pod.Name] && !ready {
				seen = append(seen, fmt.Sprintf("%s: %+v", pod.Name, pod.Status.Conditions))
			}
			was[pod.Name] = ready
		}
	}()
	return func() []string {
		cancel()
		<-done
		return seen
	}
}

// An agent that was killed takes its pods back: nothing is restarted, nothing becomes unready,
// the node stays ready, and what was deleted meanwhile ends.
func TestNodeRestart(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns := s.plane.Namespace(t, "restart")
	static := MakePod("static", Main(Sh("c", Forever)))
	s.agent.Put(t, static)
	s.create(t, ns, MakePod("stays", Main(readyNow("c"))), MakePod("plain", Main(Sh("c", Forever))),
		MakePod("deleted", Main(Sh("c", Forever))),
		MakePod("finishes", Policy(v1.RestartPolicyNever),
			Main(Sh("c", "while [ ! -e /end ]; do sleep 0.1; done; exit 7"))))
	before := map[string]*v1.Pod{}
	for _, name := range []string{"stays", "plain", "deleted", "finishes"} {
		before[name] = s.await(t, ns, name, Running, Ready(true))
	}
	mirror := s.await(t, "default", FullName(static), Running, Ready(true))
	flaps := s.watchReadiness(t, ns)
	node := s.awaitNode(t, nodeReady)

	s.agent.Kill(t)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "deleted", "--wait=false")
	s.End(t, "finishes", "c")
	begin := time.Now()
	s.agent.Start(t)
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=delete", "pod/deleted", "--timeout=180s")
	got := s.await(t, ns, "finishes", Phase(v1.PodFailed), Terminated("c", 7))
	t.Logf("the truth is there after %v", time.Since(begin))
	assert.Equal(t, before["finishes"].UID, got.UID)
	s.agent.WaitHealthy(t)
	Eventually(t, eventually, "probes of the new agent", func() error {
		for _, m := range metricsPage(t, s.agent, "/metrics/probes")["prober_probe_total"].GetMetric() {
			if labels := labelsOf(m); labels["pod"] == "stays" && labels["result"] == "successful" &&
				m.GetCounter().GetValue() >= 2 {
				return nil
			}
		}
		return errors.New("less than two have succeeded")
	})
	for _, name := range []string{"stays", "plain"} {
		adopted(t, before[name], s.await(t, ns, name, Running, Ready(true)))
	}
	after := s.await(t, "default", FullName(static), Running)
	assert.Equal(t, mirror.UID, after.UID, "the mirror pod is the same")
	adopted(t, mirror, after)
	for _, flap := range flaps() {
		if !strings.HasPrefix(flap, "deleted:") && !strings.HasPrefix(flap, "finishes:") {
			t.Errorf("became unready: %s", flap)
		}
	}
	assert.Equal(t, node.UID, s.awaitNode(t, nodeReady).UID)
}

// A node joins with a bootstrap token, and has the certificate that it gets.
func TestTLSBootstrap(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	c.Preload(t, "pause:1", "busybox:1")
	kubeconfig, certs := filepath.Join(t.TempDir(), "kubelet.conf"), t.TempDir()
	s.agent = c.NewAgent(t, AgentOptions{
		Kubeconfig: kubeconfig, Config: map[string]any{"rotateCertificates": true},
		Args: []string{"--bootstrap-kubeconfig", s.plane.BootstrapKubeconfig(t), "--cert-dir", certs,
			"--node-labels", "site=north"},
	})
	begin := time.Now()
	s.start(t)
	t.Logf("ready after %v", time.Since(begin))
	assert.Equal(t, "north", s.awaitNode(t).Labels["site"])
	for _, file := range []string{kubeconfig, filepath.Join(certs, "kubelet-client-current.pem")} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
	}
	ns := s.plane.Namespace(t, "bootstrap")
	s.create(t, ns, MakePod("first", Main(Sh("c", Forever))))
	pod := s.await(t, ns, "first", Running)
	s.agent.Kill(t)
	s.plane.Kubectl(t, "delete", "secret", "-n", "kube-system", "bootstrap-token-abcdef")
	s.start(t)
	adopted(t, pod, s.await(t, ns, "first", Running))
	s.create(t, ns, MakePod("second", Main(Sh("c", Forever))))
	s.await(t, ns, "second", Running)
}

// A second agent with the name of a node whose lease is fresh refuses to run.
func TestTwoAgentsOfOneName(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns := s.plane.Namespace(t, "two")
	s.create(t, ns, MakePod("first", Main(Sh("c", Forever))))
	before := s.await(t, ns, "first", Running)
	other := NewCluster(t)
	second := other.NewAgent(t, AgentOptions{Kubeconfig: s.plane.NodeKubeconfig(t, NodeName), Net: s.Net})
	second.Start(t)
	Eventually(t, 2*time.Minute, "the second agent ends", func() error {
		if !second.Exited() {
			return errors.New("it runs")
		}
		return nil
	})
	log, err := os.ReadFile(second.LogPath())
	require.NoError(t, err)
	assert.Contains(t, string(log), "another agent has the name of this node")
	adopted(t, before, s.await(t, ns, "first", Running))
	s.awaitNode(t, nodeReady)
}
