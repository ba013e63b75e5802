package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// atOnce is how many calls the bare client of the benchmark has under way.
const atOnce = 8

// BenchmarkColdStart measures N pods from the drop of their manifests until all
// are reported Running, and beside it, by turns on the same containerd, a bare
// client that makes the same CRI calls, 8 pods at a time, until all its
// containers are started. The metric "ratio" is the one over the other, by
// their medians; run it with -benchtime=5x or so:
//
//	go test -run '^$' -bench ColdStart -benchtime 5x -timeout 30m
//
// KUBELETKIT_E2E_PODS sets N, as in "25,100"; KUBELETKIT_E2E_AGENT_ARGS has flags for
// the agent, to see what something costs. KUBELETKIT_E2E_REST is how long to wait before
// each round: ext4 without a journal does not use an inode again within a minute of its
// removal, and looks at all of those whenever it makes a file.
func BenchmarkColdStart(b *testing.B) {
	counts := os.Getenv("KUBELETKIT_E2E_PODS")
	if counts == "" {
		counts = "25,100"
	}
	for _, field := range strings.Split(counts, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatalf("KUBELETKIT_E2E_PODS: %v", err)
		}
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) { benchmarkColdStart(b, n) })
	}
}

func benchmarkColdStart(b *testing.B, n int) {
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	agent := c.NewAgent(b, AgentOptions{Args: append([]string{"-v", "0"}, strings.Fields(os.Getenv("KUBELETKIT_E2E_AGENT_ARGS"))...)})
	// Each round has pods of its own, as what is new to a node is: containerd goes on
	// telling of those of earlier rounds for a while.
	rounds := 0
	pods := func() []*v1.Pod {
		rounds++
		pods := make([]*v1.Pod, n)
		for i := range pods {
			pods[i] = MakePod(fmt.Sprintf("cold-%d-%d", rounds, i), Grace(0), Main(Sh("c", Forever)))
		}
		return pods
	}
	// One round each that does not count: it makes the bridge, fills the caches,
	// and gives the bare client the configurations that the agent uses.
	var bare []Pod
	first := pods()
	agentRound(b, c, agent, first, func() { bare = bareCopies(b, c, agent, first) })
	bareRound(b, c, bare)

	var pause time.Duration
	if text := os.Getenv("KUBELETKIT_E2E_REST"); text != "" {
		var err error
		if pause, err = time.ParseDuration(text); err != nil {
			b.Fatalf("KUBELETKIT_E2E_REST: %v", err)
		}
	}
	var theirs, ours []float64
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(pause)
		theirs = append(theirs, bareRound(b, c, bare).Seconds())
		time.Sleep(pause)
		ours = append(ours, agentRound(b, c, agent, pods(), nil).Seconds())
	}
	b.StopTimer()
	b.Logf("%d pods: agent %.2f s, bare client %.2f s", n, ours, theirs)
	b.ReportMetric(0, "ns/op") // the rounds with their cleaning up mean nothing
	b.ReportMetric(median(ours), "agent-s")
	b.ReportMetric(median(theirs), "bare-s")
	b.ReportMetric(median(ours)/median(theirs), "ratio")
}

// agentRound times the start of the pods by the agent, calls look while they
// run, and removes them.
func agentRound(b *testing.B, c *Cluster, agent *Agent, pods []*v1.Pod, look func()) time.Duration {
	b.Helper()
	agent.Start(b)
	agent.WaitHealthy(b)
	awaitQuiet(b, agent)
	drop := agent.Stage(b, pods...)
	begin := time.Now()
	drop()
	awaitRunning(b, agent, len(pods))
	took := time.Since(begin)
	if look != nil {
		look()
	}
	agent.Remove(b, pods...)
	agent.AwaitGone(b, 5*time.Minute, pods...)
	agent.Stop(b)
	return took
}

// bareRound times the start of the pods by the bare client, and removes them.
func bareRound(b *testing.B, c *Cluster, pods []Pod) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	begin := time.Now()
	if err := c.RunPods(ctx, atOnce, pods); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begin)
	if err := c.RemoveAll(); err != nil {
		b.Fatal(err)
	}
	return took
}

// bareCopies returns pods for the bare client that are like those which the agent
// runs at the moment: same labels, annotations, environment, mounts and limits.
// What they mount is copied, as the agent removes its files.
func bareCopies(b *testing.B, c *Cluster, agent *Agent, pods []*v1.Pod) []Pod {
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

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
