package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// fsyncDelay is how much longer each fsync of an agent takes in BenchmarkSlowDisk.
const fsyncDelay = "15ms"

// BenchmarkSlowDisk starts n pods with agents that have a fast disk, and with agents each of whose fsyncs takes 15 ms
// longer, as on a network disk or a hard disk. strace delays them, and stops the agent at no other call. The runtime
// has the fast disk in both.
//
//	KUBELET_BIN=… go test -run '^$' -bench SlowDisk -benchtime 5x -timeout 60m
func BenchmarkSlowDisk(b *testing.B) {
	forEachSize(b, "100", benchmarkSlowDisk)
}

func benchmarkSlowDisk(b *testing.B, n int) {
	Need(b, "strace")
	const slow = "-slow"
	var list []contestant
	for _, who := range contestants(b, minikubelet, kubelet) {
		binary := cmp.Or(who.options.Binary, MinikubeletBinary(b))
		list = append(list, who)
		who.name += slow
		who.options.Binary = filepath.Join(b.TempDir(), filepath.Base(binary)) // the harness knows a kubelet by its name
		who.options.Current = strings.HasPrefix(who.name, minikubelet)
		script := fmt.Sprintf("#!/bin/sh\nexec strace -D -f -qqq --seccomp-bpf -o /dev/null -e signal=none "+
			"-e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=%s '%s' \"$@\"\n", fsyncDelay, binary)
		if err := os.WriteFile(who.options.Binary, []byte(script), 0o755); err != nil {
			b.Fatal(err)
		}
		list = append(list, who)
	}
	c := benchCluster(b)
	took, rounds := samples{}, 0
	turn := func(who contestant, add func(unit string, value float64)) {
		rounds++
		agentRound(b, c, who.options, benchPods(fmt.Sprintf("slow-%d", rounds), n), nil, add)
	}
	turn(list[0], func(string, float64) {}) // it fills the caches
	takeTurns(b, list, func(who contestant) {
		turn(who, func(unit string, value float64) { took.add(who.name, unit, value) })
	})
	took.report(b, list, "s", minikubelet, nil)
}
