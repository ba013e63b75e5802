package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkNodeIdle measures an agent that is a node with n pods of the API to which nothing
// happens, for KUBELETKIT_E2E_IDLE (5m). The agents take turns. The rest of a round takes one or two
// minutes on a quiet machine. What was measured of an agent is also logged at once, so that a run that is
// ended too early is not for nothing.
//
//   - "cpu-%" is its CPU time in percent of a core, "wake-ups/s" how often a thread of it gets a CPU, "rss-MB" its
//     resident memory at the end.
//   - The others are the requests of each kind that it has made in that time, for 5 minutes, as
//     in "update:leases". Watches are counted when they end, which is after 5 to 10 minutes.
//
// KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench NodeIdle -benchtime 1x -timeout 60m
func BenchmarkNodeIdle(b *testing.B) {
	forEachSize(b, "100", benchmarkNodeIdle)
}

func benchmarkNodeIdle(b *testing.B, n int) {
	period := idlePeriod(b, "5m")
	list := contestants(b, minikubelet, baseline, kubelet)
	pause := restBeforeEach(b)
	c := benchCluster(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		who.options.Kubeconfig = kubeconfig
		agent := launch(b, c, who.options, n)
		awaitNode(b, plane)
		m := &nodeMeasurement{c: c, plane: plane, agent: agent}
		m.start(b, benchPods(fmt.Sprintf("idle-%d", round), n, Grace(2)))
		time.Sleep(20*time.Second + pause) // what follows the starts is over
		calls, cpu, wakeUps, began := plane.Audited(b), agent.ThreadCPU(b), agent.WakeUps(b), time.Now()
		time.Sleep(period)
		cpu, wakeUps = agent.ThreadCPU(b)-cpu, agent.WakeUps(b)-wakeUps
		elapsed := time.Since(began)
		add := func(unit string, value float64) {
			took.add(who.name, unit, value)
			fmt.Printf("%s, %d pods, idle for %.0f s: %.3f %s\n", who.name, n, elapsed.Seconds(), value, unit)
		}
		add("cpu-%", 100*float64(cpu)/float64(elapsed))
		add("wake-ups/s", float64(wakeUps)/elapsed.Seconds())
		add("rss-MB", float64(agent.Cost(b).RSS)/(1<<20))
		for call, count := range plane.Audited(b) {
			if count -= calls[call]; count > 0 {
				add(strings.Replace(call, " ", ":", 1), float64(count)*float64(5*time.Minute)/float64(elapsed))
			}
		}
		m.deleteAll(b)
		retire(b, c, plane, agent)
	})
	took.report(b, list, "cpu-%", "", nil)
}

// awaitNode waits until the node is ready.
func awaitNode(b *testing.B, plane *ControlPlane) {
	b.Helper()
	Eventually(b, time.Minute, "node ready", func() error {
		node, err := plane.Client.CoreV1().Nodes().Get(b.Context(), NodeName, metav1.GetOptions{})
		if err == nil {
			err = nodeReady(node)
		}
		return err
	})
}

// retire ends an agent whose pods are deleted, so that the next one is the node at once and finds
// nothing in the runtime to remove. It deletes the lease: the next agent is another one and would
// wait for the end of it.
func retire(b *testing.B, c *Cluster, plane *ControlPlane, agent *Agent) {
	b.Helper()
	awaitRemoved(b, c)
	agent.Kill(b)
	if err := plane.Client.CoordinationV1().Leases("kube-node-lease").Delete(b.Context(), NodeName,
		metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// awaitRemoved waits until the runtime has no pod. The object of a pod is deleted before that.
func awaitRemoved(b *testing.B, c *Cluster) {
	b.Helper()
	Eventually(b, 2*time.Minute, "all pods removed", func() error {
		if left := len(c.Sandboxes(b, "")); left > 0 {
			return fmt.Errorf("%d sandboxes are left", left)
		}
		return nil
	})
}
