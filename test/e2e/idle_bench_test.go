package e2e

import (
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkIdle measures what n pods to which nothing happens cost in a minute:
// CPU time of the agent (cpu-%), and of containerd beyond what it uses with no agent at
// all (containerd-%), in percent of a core; and the resident memory of the agent (MB). The
// bare client is no agent, and its containerd-% is all that containerd uses.
//
// KUBELETKIT_E2E_REST is a longer pause before each measurement, as in "5m", so that nothing that
// follows the starts is measured.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench Idle -benchtime 1x -timeout 60m
func BenchmarkIdle(b *testing.B) {
	forEachSize(b, "100,300", benchmarkIdle)
}

func benchmarkIdle(b *testing.B, n int) {
	list := contestants(b, bareClient, minikubelet, baseline, relisting, kubelet)
	pause := restBeforeEach(b)
	c := benchCluster(b)
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		agent, _ := crowd(b, c, who.options, n)
		time.Sleep(15*time.Second + pause) // what follows the starts is over
		measured := agent
		if who.name == bareClient {
			agent.Stop(b)
			measured = nil
		} else {
			took.add(who.name, "MB", float64(agent.Cost(b).RSS)/1e6)
		}
		percent := measure(b, c, measured)
		if measured != nil {
			took.add(who.name, "cpu-%", percent[0])
		}
		took.add(who.name, "containerd-%", percent[1])
		disband(b, c, agent)
	})
	without := took[bareClient]["containerd-%"]
	took.report(b, list, "", "", func(name string) map[string]float64 {
		if name == bareClient || len(without) == 0 {
			return nil
		}
		return map[string]float64{"containerd-%": median(took[name]["containerd-%"]) - median(without)}
	})
}

// measure returns the CPU time of a minute in percent: the agent's, if there is
// one, and containerd's.
func measure(b *testing.B, c *Cluster, agent *Agent) (percent [2]float64) {
	b.Helper()
	cost := func() (at [2]time.Duration) {
		if agent != nil {
			at[0] = agent.Cost(b).CPU
		}
		at[1] = c.Cost(b).CPU
		return at
	}
	before, began := cost(), time.Now()
	time.Sleep(time.Minute)
	after, took := cost(), time.Since(began)
	for i := range percent {
		percent[i] = 100 * float64(after[i]-before[i]) / float64(took)
	}
	return percent
}
