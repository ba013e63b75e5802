package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkBoot measures the start of n pods after a reboot of the machine: all processes are killed, and what lies in
// memory is gone; containerd is ready when the agent's process is started. No API server can be reached. The pods are
// manifests, but for the contestant "offline": its pods were of an API server, and are restored from the checkpoint.
// The bare client makes the calls that start the same pods, 8 at a time.
//
//   - "half-s" and "s" are the time from the start of the process until the runtime's events of the start of half of
//     the pods, as of the 50th of 100, and of the last one.
//   - "reported-s" is that until the agent reports all of them Running.
//   - "cpu-s" is the CPU time of the agent until then.
//
// The rest of a round, to have the pods that are restored, takes longer than what is measured.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Boot -benchtime 3x -timeout 60m
func BenchmarkBoot(b *testing.B) {
	forEachSize(b, "100", benchmarkBoot)
}

func benchmarkBoot(b *testing.B, n int) {
	list := contestants(b, bareClient, minikubelet, offline, baseline, kubelet)
	c := benchCluster(b)
	var bare []Pod
	first := benchPods("first", n)
	agentRound(b, c, AgentOptions{}, first, func(*Agent) { bare = bareCopies(b, c, first) }, func(string, float64) {})
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	plane.KillAPIServer(b)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		add := func(unit string, value float64) { took.add(who.name, unit, value) }
		pods := benchPods(fmt.Sprintf("boot-%d", round), n, noToken)
		if who.name == offline {
			plane.StartAPIServer(b)
			who.options.Kubeconfig = kubeconfig
		}
		agent := launch(b, c, who.options, n)
		if who.name == offline {
			awaitNode(b, plane)
			m := &nodeMeasurement{c: c, plane: plane, agent: agent}
			m.start(b, pods)
			m.unwatch()
			plane.KillAPIServer(b)
		} else {
			agent.Put(b, pods...)
			awaitRunning(b, agent, n)
		}
		awaitQuiet(b, agent)
		agent.Kill(b)
		c.Reboot(b)
		measureBoot(b, c, n, add, func(began time.Time) {
			if who.name == bareClient {
				if err := c.RunPods(b.Context(), atOnce, bare); err != nil {
					b.Fatal(err)
				}
				return
			}
			agent.Start(b)
			awaitRunning(b, agent, n)
			add("reported-s", time.Since(began).Seconds())
			add("cpu-s", agent.Cost(b).CPU.Seconds())
		})
		if !agent.Exited() {
			agent.Kill(b)
		}
		disband(b, c, agent)
		if who.name == offline {
			plane.StartAPIServer(b)
			if err := plane.Client.CoreV1().Pods("default").DeleteCollection(b.Context(),
				metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
				b.Fatal(err)
			}
			retire(b, c, plane, agent)
			plane.KillAPIServer(b)
		}
	})
	took.report(b, list, "s", bareClient, nil)
}

// measureBoot measures from the call of boot until n pods have started.
func measureBoot(b *testing.B, c *Cluster, n int, add func(string, float64), boot func(began time.Time)) {
	b.Helper()
	started := newMoments()
	events := c.WatchEvents(b, func(e *cri.ContainerEventResponse) {
		sandbox := e.GetPodSandboxStatus()
		if e.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT && e.ContainerId != sandbox.GetId() {
			started.now(sandbox.GetMetadata().GetName())
		}
	})
	defer events.Stop()
	time.Sleep(3 * time.Second) // what a runtime tells of the past has arrived
	if past := started.count(); past > 0 {
		b.Fatalf("the runtime has started %d pods by itself", past)
	}
	began := time.Now()
	boot(began)
	Eventually(b, time.Minute, "events of all starts", func() error {
		if got := started.count(); got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
	after := started.sorted()
	add("half-s", after[(n-1)/2].Sub(began).Seconds())
	add("s", after[n-1].Sub(began).Seconds())
}
