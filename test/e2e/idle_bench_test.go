package e2e

import (
	"math"
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkIdle measures what n pods to which nothing happens cost in a minute, in percent of a
// core. Each agent is measured with its pods for a minute, and then containerd with the same pods
// and no agent for another:
//
//   - "cpu-%" is the CPU time of the agent.
//   - "containerd-alone-%" is that of containerd in the minute without an agent. Its shims and
//     containers are left out.
//   - "containerd-%" is how much more containerd uses in the minute with the agent.
//   - "noise-%" is the difference between the two halves of the minute without an agent, without
//     its sign: a smaller containerd-% says nothing.
//   - "MB" is the resident memory of the agent.
//
// The bare client is no agent: only containerd is measured.
//
// KUBELETKIT_E2E_REST is a longer pause before each measurement, as in "5m", so that nothing that
// follows the starts is measured.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench Idle -benchtime 1x -timeout 60m
func BenchmarkIdle(b *testing.B) {
	forEachSize(b, "100,300", benchmarkIdle)
}

func benchmarkIdle(b *testing.B, n int) {
	const settled = 15 * time.Second // what follows the starts, or the end of the agent, is over
	list := contestants(b, bareClient, minikubelet, baseline, relisting, kubelet)
	pause := restBeforeEach(b)
	c := benchCluster(b)
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		agent, _ := crowd(b, c, who.options, n)
		time.Sleep(settled + pause)
		var with [2]float64
		if who.name != bareClient {
			took.add(who.name, "MB", float64(agent.Cost(b).RSS)/1e6)
			with = idleFor(b, c, agent, time.Minute)
			took.add(who.name, "cpu-%", with[0])
		}
		agent.Stop(b)
		time.Sleep(settled)
		first, second := idleFor(b, c, nil, time.Minute/2)[1], idleFor(b, c, nil, time.Minute/2)[1]
		alone := (first + second) / 2
		took.add(who.name, "containerd-alone-%", alone)
		took.add(who.name, "noise-%", math.Abs(first-second))
		if who.name != bareClient {
			took.add(who.name, "containerd-%", with[1]-alone)
		}
		disband(b, c, agent)
	})
	took.report(b, list, "", "", nil)
}

// idleFor returns the CPU time of the agent, if there is one, and of containerd in this time, in
// percent of a core.
func idleFor(b *testing.B, c *Cluster, agent *Agent, d time.Duration) (percent [2]float64) {
	b.Helper()
	cost := func() (at [2]time.Duration) {
		if agent != nil {
			at[0] = agent.ThreadCPU(b)
		}
		at[1] = c.ThreadCPU(b)
		return at
	}
	before, began := cost(), time.Now()
	time.Sleep(d)
	after, took := cost(), time.Since(began)
	for i := range percent {
		percent[i] = 100 * float64(after[i]-before[i]) / float64(took)
	}
	return percent
}
