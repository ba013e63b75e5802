package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// atOnce is how many calls the bare client has under way.
const atOnce = 8

// BenchmarkColdStart measures n pods from the drop of their manifests on an agent that
// has nothing to do until all are reported Running. The bare client makes the CRI
// calls that start the same pods, 8 pods at a time, until all its containers are
// started. "cpu-s" is the CPU time of the agent: it varies less than the time does where others
// use the machine too. "runtime-cpu-s" and "system-cpu-s" are those of BenchmarkRemoval.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench ColdStart -benchtime 5x -timeout 60m
//
// KUBELETKIT_E2E_REST is a pause before each measurement, as in "65s": ext4 without a journal does not
// use an inode again within a minute of its removal, and looks at all of those
// whenever it makes a file.
func BenchmarkColdStart(b *testing.B) {
	forEachSize(b, "100,300", benchmarkColdStart)
}

func benchmarkColdStart(b *testing.B, n int) {
	list := contestants(b, bareClient, minikubelet, baseline, kubelet)
	pause := restBeforeEach(b)
	c := benchCluster(b)
	// Each measurement has pods of its own, because containerd goes on delivering
	// events of earlier ones for a while.
	rounds := 0
	pods := func() []*v1.Pod {
		rounds++
		return benchPods(fmt.Sprintf("cold-%d", rounds), n)
	}
	// One round each that does not count: it makes the bridge, fills the caches,
	// and gives the bare client the configurations that the agent uses.
	var bare []Pod
	first := pods()
	discard := func(string, float64) {}
	agentRound(b, c, AgentOptions{}, first, func(*Agent) { bare = bareCopies(b, c, first) }, discard)
	bareRound(b, c, bare, discard)

	took := samples{}
	takeTurns(b, list, func(who contestant) {
		time.Sleep(pause)
		add := func(unit string, v float64) { took.add(who.name, unit, v) }
		if who.name == bareClient {
			bareRound(b, c, bare, add)
		} else {
			agentRound(b, c, who.options, pods(), nil, add)
		}
	})
	took.report(b, list, "s", bareClient, nil)
}

func restBeforeEach(b *testing.B) time.Duration {
	text := os.Getenv("KUBELETKIT_E2E_REST")
	if text == "" {
		return 0
	}
	pause, err := time.ParseDuration(text)
	if err != nil {
		b.Fatalf("KUBELETKIT_E2E_REST: %v", err)
	}
	return pause
}

// agentRound measures the start of the pods by a new agent, calls look, if not nil, while they
// run, and removes them with the agent.
func agentRound(b *testing.B, c *Cluster, options AgentOptions, pods []*v1.Pod, look func(*Agent),
	add func(unit string, value float64)) {
	b.Helper()
	agent := launch(b, c, options, len(pods))
	start, cost := stageStart(b, agent, pods), agent.Cost(b).CPU
	measureStart(b, c, add, start)
	add("cpu-s", (agent.Cost(b).CPU - cost).Seconds())
	if look != nil {
		look(agent)
	}
	disband(b, c, agent)
}

// stageStart waits until the agent has nothing to do, and returns what starts the pods and
// waits until they run.
func stageStart(b *testing.B, agent *Agent, pods []*v1.Pod) (start func()) {
	b.Helper()
	awaitQuiet(b, agent)
	drop := agent.Stage(b, pods...)
	return func() {
		drop()
		awaitRunning(b, agent, len(pods))
	}
}

// bareRound measures the start of the pods by the bare client, and removes them.
func bareRound(b *testing.B, c *Cluster, pods []Pod, add func(unit string, value float64)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	measureStart(b, c, add, func() {
		if err := c.RunPods(ctx, atOnce, pods); err != nil {
			b.Fatal(err)
		}
	})
	if err := c.RemoveAll(); err != nil {
		b.Fatal(err)
	}
}

// measureStart measures the time of a start, and the CPU time of the runtime and of the machine
// in it.
func measureStart(b *testing.B, c *Cluster, add func(unit string, value float64), start func()) {
	b.Helper()
	system, runtime, began := SystemCPU(b), c.CPU(b), time.Now()
	start()
	add("s", time.Since(began).Seconds())
	add("runtime-cpu-s", (c.CPU(b) - runtime).Seconds())
	add("system-cpu-s", (SystemCPU(b) - system).Seconds())
}

// bareCopies returns pods for the bare client that are like those which the agent
// runs at the moment: same labels, annotations, environment, mounts and limits.
// What they mount is copied, as the agent removes its files.
func bareCopies(b *testing.B, c *Cluster, pods []*v1.Pod) []Pod {
	b.Helper()
	dir := b.TempDir()
	copies := make([]Pod, len(pods))
	for i, pod := range pods {
		name := FullName(pod)
		sandbox, containers := c.Configs(b, name)
		sandbox.Metadata.Name = "bare-" + name
		sandbox.LogDirectory = filepath.Join(dir, name)
		for _, config := range containers {
			if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, config.Metadata.Name), 0o755); err != nil {
				b.Fatal(err)
			}
			for k, mount := range config.Mounts {
				path := filepath.Join(dir, fmt.Sprintf("%s-%d", name, k))
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					b.Fatal(err)
				}
				mount.HostPath = path
			}
		}
		copies[i] = Pod{Sandbox: sandbox, Containers: containers}
	}
	return copies
}
