package e2e

import (
	"fmt"
	"testing"
	"time"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkWrites measures what the lives of n pods write to disks, from the drop of their manifests until nothing is
// left of them and the agent has nothing to do:
//
//   - "syncs" is the number of calls of the agent that wait for a disk: fsync, fdatasync, sync_file_range, syncfs and
//     msync. perf counts them in the kernel, which slows nothing down.
//   - "kB" is what the agent's writes send to disks: new and changed pages, without those of file systems in memory.
//   - "runtime-syncs" and "runtime-kB" are those of containerd. The calls include those of what it runs: shims, runc,
//     network plugins.
//
// All values are for a pod.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Writes -benchtime 3x -timeout 60m
func BenchmarkWrites(b *testing.B) {
	forEachSize(b, "100", benchmarkWrites)
}

func benchmarkWrites(b *testing.B, n int) {
	Need(b, "perf")
	list := contestants(b, bareClient, minikubelet, baseline, kubelet)
	c := benchCluster(b)
	var bare []Pod
	first := benchPods("first", n)
	agentRound(b, c, AgentOptions{}, first, func(*Agent) { bare = bareCopies(b, c, first) }, func(string, float64) {})
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		count := func(prefix string, w Writes) {
			took.add(who.name, prefix+"syncs", float64(w.Syncs)/float64(n))
			took.add(who.name, prefix+"kB", float64(w.Bytes)/1000/float64(n))
		}
		if who.name == bareClient {
			end := c.CountWrites(b)
			if err := c.RunPods(b.Context(), atOnce, bare); err != nil {
				b.Fatal(err)
			}
			if err := c.RemoveAll(); err != nil {
				b.Fatal(err)
			}
			count("runtime-", end())
			return
		}
		agent, pods := launch(b, c, who.options, n), benchPods(fmt.Sprintf("life-%d", round), n)
		start := stageStart(b, agent, pods)
		end, endRuntime := agent.CountWrites(b), c.CountWrites(b)
		start()
		agent.Remove(b, pods...)
		agent.AwaitGone(b, 5*time.Minute, pods...)
		awaitQuiet(b, agent)
		count("", end())
		count("runtime-", endRuntime())
		disband(b, c, agent)
	})
	took.report(b, list, "runtime-syncs", bareClient, nil)
}
