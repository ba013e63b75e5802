package e2e

import (
	"fmt"
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkPodCgroups measures what cgroups of pods cost. In a round each contestant, in another order
// each time, starts n pods on an agent that has nothing to do, and is idle with them for
// KUBELETKIT_E2E_IDLE (1m). The reference is the agent with cgroupsPerQOS: false.
//
//   - "s" is the time until all pods are Running, and "ratio" that to the reference: the median of the
//     rounds. "cpu-s" is the CPU time of the agent in it.
//   - "idle-%" is its CPU time while idle, in percent of a core.
//
// KUBELETKIT_E2E_BASELINE is another contestant, such as an agent of a commit without cgroups.
//
//	KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench PodCgroups -benchtime 9x -timeout 2h
func BenchmarkPodCgroups(b *testing.B) {
	forEachSize(b, "100", benchmarkPodCgroups)
}

func benchmarkPodCgroups(b *testing.B, n int) {
	list := contestants(b, withoutCgroups, minikubelet, baseline)
	pause, period := restBeforeEach(b), idlePeriod(b, "1m")
	c := benchCluster(b)
	disband(b, c, first(crowd(b, c, AgentOptions{}, n))) // one that does not count
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		time.Sleep(pause)
		add := func(unit string, v float64) { took.add(who.name, unit, v) }
		agentRound(b, c, who.options, benchPods(fmt.Sprintf("cgroups-%d", round), n), func(agent *Agent) {
			time.Sleep(15 * time.Second) // what follows the starts is over
			add("idle-%", idleFor(b, c, agent, period)[0])
		}, add)
	})
	took.report(b, list, "s", withoutCgroups, nil)
}

func first[T, U any](value T, _ U) T { return value }
