package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkRemoval removes n pods with a grace period of 2 s, which their containers
// use up, and measures until nothing is left of them in the runtime ("s"), until no
// container runs by what the runtime lists ("s-stopped"), and until no process of them is
// left ("s-killed"). The bare client stops and removes pods with the same
// configurations, all at once. Each contestant has pods of its own that it has started.
// The contestant "stops" is the bare client that stops the containers and nothing else, all
// at once: no agent is faster until no container runs.
//
//   - "cpu-s" is the CPU time of the agent.
//   - "pod-cpu-ms" is the CPU time of the agent from its beginning to the end of the
//     removal, for each pod.
//   - "system-cpu-s" is the CPU time of all processes of the machine,
//     "runtime-cpu-s" that of containerd, its shims, runc and network plugins, and
//     "rest-cpu-s" what neither these nor the agent nor the benchmark used: containers, and
//     threads of the kernel.
//   - "sandbox-stops" is the number of StopPodSandbox calls.
//   - "errors" is the number of errors in containerd's log.
//
// KUBELETKIT_E2E_SIGTERM=1 has containers that exit at SIGTERM.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench Removal -benchtime 3x -timeout 60m
func BenchmarkRemoval(b *testing.B) {
	forEachSize(b, "100,300", benchmarkRemoval)
}

// ignoresTERM is a shell script that ignores SIGTERM and uses no CPU time. Stubborn of the harness
// makes a process each second, of 0.8 to 1 ms: 300 of them use an eighth of two processors, until
// they are killed.
const ignoresTERM = "trap '' TERM; exec sleep 2147483647"

func benchmarkRemoval(b *testing.B, n int) {
	list := contestants(b, bareClient, onlyStops, minikubelet, baseline, relisting, kubelet)
	c := benchCluster(b)
	rounds := 0
	pods := func() []*v1.Pod {
		rounds++
		command := ignoresTERM
		if os.Getenv("KUBELETKIT_E2E_SIGTERM") != "" {
			command = Forever
		}
		return benchPods(fmt.Sprintf("pod-%d", rounds), n, Grace(2),
			func(pod *v1.Pod) { pod.Spec.Containers[0] = Sh("c", command) })
	}
	var bare []Pod
	if list[0].name == bareClient || list[0].name == onlyStops {
		// This gives the bare client the configurations that the agent uses.
		first := pods()
		agentRound(b, c, AgentOptions{}, first, func(*Agent) { bare = bareCopies(b, c, first) },
			func(string, float64) {})
	}
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		if who.name == bareClient || who.name == onlyStops {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			if err := c.RunPods(ctx, atOnce, bare); err != nil {
				b.Fatal(err)
			}
			if who.name == onlyStops {
				began := time.Now()
				if err := c.StopAll(2); err != nil {
					b.Log(err)
				}
				untilStopped(c, n, 10*time.Minute)
				took.add(who.name, "s-stopped", time.Since(began).Seconds())
				took.add(who.name, "s", time.Since(began).Seconds())
				if err := c.RemoveAll(); err != nil {
					b.Fatal(err)
				}
				return
			}
			measureRemoval(b, c, nil, func(unit string, v float64) { took.add(who.name, unit, v) }, func() {
				for err := c.EndAll(2); err != nil; err = c.EndAll(2) {
					// some calls fail in a runtime that is overloaded
					if b.Log(err); ctx.Err() != nil {
						b.Fatal("the bare client cannot remove its pods")
					}
				}
			})
			if err := c.RemoveAll(); err != nil {
				b.Fatal(err)
			}
			return
		}
		agent, list := launch(b, c, who.options, n), pods()
		agent.Put(b, list...)
		awaitRunning(b, agent, n)
		measureRemoval(b, c, agent, func(unit string, v float64) { took.add(who.name, unit, v) },
			func() { agent.Remove(b, list...) })
		took.add(who.name, "pod-cpu-ms", agent.Cost(b).CPU.Seconds()*1000/float64(n))
		disband(b, c, agent)
	})
	took.report(b, list, "s", bareClient, func(name string) map[string]float64 {
		metrics := map[string]float64{}
		if ours, theirs := took[name]["s-stopped"], took[bareClient]["s-stopped"]; name != bareClient &&
			len(theirs) > 0 {
			metrics["ratio-stopped"] = ratio(b, ours, theirs)
		}
		return metrics
	})
}

// measureRemoval measures from the call of remove until nothing is left in the runtime.
func measureRemoval(b *testing.B, c *Cluster, agent *Agent, add func(unit string, value float64), remove func()) {
	b.Helper()
	var pids []int
	for _, ctr := range c.Containers(b, "") {
		pids = append(pids, c.PID(b, ctr.Id))
	}
	log, system, runtime, client := c.LogSize(b), SystemCPU(b), c.CPU(b), ownCPU(b)
	var cpu time.Duration
	if agent != nil {
		cpu = agent.Cost(b).CPU
	}
	killed, stopped, gone := make(chan time.Duration, 1), make(chan time.Duration, 1), make(chan time.Duration, 1)
	go func() { killed <- untilEnded(pids, 10*time.Minute) }()
	go func() { stopped <- untilStopped(c, len(pids), 10*time.Minute) }()
	go func() { gone <- untilGone(c, len(pids), 10*time.Minute) }()
	remove()
	took := <-gone
	if n := len(c.Sandboxes(b, "")); n > 0 {
		b.Fatalf("%d sandboxes are left after %v", n, took)
	}
	add("s", took.Seconds())
	add("s-stopped", (<-stopped).Seconds())
	add("s-killed", (<-killed).Seconds())
	used := SystemCPU(b) - system
	add("system-cpu-s", used.Seconds())
	rest := used - (c.CPU(b) - runtime) - (ownCPU(b) - client)
	if agent != nil {
		rest -= agent.Cost(b).CPU - cpu
	}
	add("rest-cpu-s", rest.Seconds())
	if agent != nil {
		add("cpu-s", (agent.Cost(b).CPU - cpu).Seconds())
	}
	add("runtime-cpu-s", (c.CPU(b) - runtime).Seconds())
	stops, failures := 0, 0
	for _, line := range c.LogSince(b, log) {
		if strings.Contains(line, `msg="StopPodSandbox for `) && !strings.Contains(line, "returns") {
			stops++
		}
		if strings.Contains(line, "level=error") {
			failures++
		}
	}
	add("sandbox-stops", float64(stops))
	add("errors", float64(failures))
}

// untilStopped returns how long it takes until the runtime lists none of n containers as running.
func untilStopped(c *Cluster, n int, limit time.Duration) time.Duration {
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	return untilNone(n, limit, func(ctx context.Context) (int, error) {
		resp, err := c.Runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: running})
		return len(resp.GetContainers()), err
	})
}

// untilGone returns how long it takes until the runtime lists no sandbox, of n.
func untilGone(c *Cluster, n int, limit time.Duration) time.Duration {
	return untilNone(n, limit, func(ctx context.Context) (int, error) {
		resp, err := c.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		return len(resp.GetItems()), err
	})
}

// untilNone returns how long it takes until nothing of n is left, at most the limit. A list costs the
// runtime several milliseconds. So the next list follows after half of the time that the rest takes
// at the present pace. All contestants have the same load by that, about 30 lists.
func untilNone(n int, limit time.Duration, count func(context.Context) (int, error)) time.Duration {
	const soonest, latest = 20 * time.Millisecond, time.Second
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for ctx.Err() == nil {
		left, err := count(ctx)
		if err == nil && left == 0 {
			break
		}
		pause := time.Since(began) / 8
		if done := n - left; err == nil && done > 0 {
			pause = time.Since(began) * time.Duration(left) / time.Duration(2*done)
		}
		time.Sleep(min(max(pause, soonest), latest))
	}
	return time.Since(began)
}

// untilEnded returns how long it takes until none of the processes exists, at most the
// limit. It calls the kernel and not the runtime, which is busy.
func untilEnded(pids []int, limit time.Duration) time.Duration {
	began := time.Now()
	for len(pids) > 0 && time.Since(began) < limit {
		time.Sleep(20 * time.Millisecond)
		pids = slices.DeleteFunc(pids, func(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
	return time.Since(began)
}
