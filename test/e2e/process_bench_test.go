package e2e

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkProcessStart measures n pods without a container runtime, from the drop of
// their manifests until all are reported Running. Beside it the same n commands are started by
// fork and exec, 8 at a time.
//
//	go test -run '^$' -bench ProcessStart -benchtime 5x -timeout 30m
func BenchmarkProcessStart(b *testing.B) {
	forEachSize(b, "300", benchmarkProcessStart)
}

func benchmarkProcessStart(b *testing.B, n int) {
	list := contestants(b, forkExec, minikubelet, baseline)
	command := []string{"sleep", "2147483647"}
	pods := benchPods("cold", n, func(pod *v1.Pod) {
		c := Sh("c", "")
		c.Command = command
		pod.Spec.Containers[0] = c
	})
	agents := map[string]*Agent{}
	for _, who := range list {
		if who.name != forkExec {
			who.options.Config = map[string]any{"maxPods": 2 * n}
			who.options.Args = append([]string{"-v", "0"}, who.options.Args...)
			agents[who.name] = NewProcessAgent(b, who.options)
			processRound(b, agents[who.name], pods) // does not count
		}
	}
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		if who.name == forkExec {
			took.add(who.name, "s", forkExecRound(b, n, command).Seconds())
		} else {
			start, cpu := processRound(b, agents[who.name], pods)
			took.add(who.name, "s", start.Seconds())
			took.add(who.name, "cpu-s", cpu.Seconds())
		}
	})
	took.report(b, list, "s", forkExec, nil)
}

// processRound times the start of the pods by the agent, and has it remove them.
func processRound(b *testing.B, agent *Agent, pods []*v1.Pod) (took, cpu time.Duration) {
	b.Helper()
	agent.Start(b)
	agent.WaitHealthy(b)
	start, cost, began := stageStart(b, agent, pods), agent.Cost(b).CPU, time.Now()
	start()
	took, cpu = time.Since(began), agent.Cost(b).CPU-cost
	agent.Remove(b, pods...)
	agent.AwaitGone(b, 5*time.Minute, pods...)
	agent.Stop(b)
	return took, cpu
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
