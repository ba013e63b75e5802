package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkRemoval removes n pods with a grace period of 2 s, which their containers
// use up, and measures until nothing is left of them in the runtime. The bare client
// stops and removes the same pods, all at once. "cpu-s" is the CPU time of the agent.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench Removal -benchtime 3x -timeout 60m
func BenchmarkRemoval(b *testing.B) {
	forEachSize(b, "100", benchmarkRemoval)
}

func benchmarkRemoval(b *testing.B, n int) {
	list := contestants(b, bareClient, minikubelet, baseline, relisting, kubelet)
	c := benchCluster(b)
	stubborn := []Option{Grace(2), func(pod *v1.Pod) { pod.Spec.Containers[0] = Sh("c", Stubborn) }}
	empty := func() error {
		if n := len(c.Sandboxes(b, "")); n > 0 {
			return fmt.Errorf("%d sandboxes are left", n)
		}
		return nil
	}
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		agent, pods := crowd(b, c, who.options, n, stubborn...)
		if who.name == bareClient {
			agent.Stop(b)
			began := time.Now()
			if err := c.EndAll(2); err != nil {
				b.Fatal(err)
			}
			Eventually(b, 10*time.Minute, "all pods removed", empty)
			took.add(who.name, "s", time.Since(began).Seconds())
		} else {
			cost, began := agent.Cost(b).CPU, time.Now()
			agent.Remove(b, pods...)
			Eventually(b, 10*time.Minute, "all pods removed", empty)
			took.add(who.name, "s", time.Since(began).Seconds())
			took.add(who.name, "cpu-s", (agent.Cost(b).CPU - cost).Seconds())
		}
		disband(b, c, agent)
	})
	took.report(b, list, "s", bareClient, took.spread("s"))
}
