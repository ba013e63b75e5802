package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkProcessStart measures N pods without a container runtime, from the drop of
// their manifests until all are reported Running, and beside it, by turns, fork and exec of the same
// N commands, 8 at a time. The metric "ratio" is the one over the other, by their medians:
//
//	go test -run '^$' -bench ProcessStart -benchtime 5x -timeout 30m
//
// KUBELETKIT_E2E_PODS sets N; it is 300 by default.
func BenchmarkProcessStart(b *testing.B) {
	n := 300
	if text := os.Getenv("KUBELETKIT_E2E_PODS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatalf("KUBELETKIT_E2E_PODS: %v", err)
		}
	}
	command := []string{"sleep", "2147483647"}
	agent := NewProcessAgent(b, AgentOptions{Config: map[string]any{"maxPods": 2 * n}, Args: []string{"-v", "0"}})
	pods := make([]*v1.Pod, n)
	for i := range pods {
		c := Sh("c", "")
		c.Command = command
		pods[i] = MakePod(fmt.Sprintf("cold-%d", i), Grace(0), Main(c))
	}
	agentRound(b, nil, agent, pods, nil) // does not count
	var plain, ours []float64
	b.ResetTimer()
	for b.Loop() {
		plain = append(plain, forkExecRound(b, n, command).Seconds())
		ours = append(ours, agentRound(b, nil, agent, pods, nil).Seconds())
	}
	b.StopTimer()
	b.Logf("%d pods: agent %.2f s, fork and exec %.3f s", n, ours, plain)
	b.ReportMetric(0, "ns/op") // the rounds with their cleaning up mean nothing
	b.ReportMetric(median(ours), "agent-s")
	b.ReportMetric(median(plain), "forkexec-s")
	b.ReportMetric(median(ours)/median(plain), "ratio")
}

// forkExecRound times the start of n processes, and ends them.
func forkExecRound(b *testing.B, n int, command []string) time.Duration {
	b.Helper()
	cmds := make([]*exec.Cmd, n)
	begin := time.Now()
	var starts sync.WaitGroup
	for first := range atOnce {
		starts.Go(func() {
			for i := first; i < n; i += atOnce {
				cmds[i] = exec.Command(command[0], command[1:]...)
				if err := cmds[i].Start(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	starts.Wait()
	took := time.Since(begin)
	for _, cmd := range cmds {
		if cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	return took
}
