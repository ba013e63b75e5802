package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// generic are the options of an agent that lives on relists alone.
func generic() AgentOptions {
	return AgentOptions{Config: map[string]any{"featureGates": map[string]any{"EventedPLEG": false}}}
}

// contestants are the agents that a benchmark compares. KUBELET_BIN adds a
// kubelet.
func contestants() []contestant {
	list := []contestant{{"agent", AgentOptions{}}, {"generic", generic()}}
	if bin := os.Getenv("KUBELET_BIN"); bin != "" {
		list = append(list, contestant{"kubelet", AgentOptions{Binary: bin}})
	}
	return list
}

type contestant struct {
	name    string
	options AgentOptions
}

// crowd starts an agent, which logs as little as by default, and n pods that run
// forever, and waits until all do.
func crowd(b *testing.B, c *Cluster, options AgentOptions, n int, spec ...Option) (*Agent, []*v1.Pod) {
	b.Helper()
	dir, err := os.MkdirTemp(c.Dir, "agent")
	if err != nil {
		b.Fatal(err)
	}
	options.Dir = dir
	options.Args = slices.Concat([]string{"-v", "0"}, options.Args)
	agent := c.StartAgent(b, options)
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = MakePod(fmt.Sprintf("pod-%d", i), append([]Option{Grace(0), Main(Sh("c", Forever))}, spec...)...)
	}
	agent.Put(b, pods...)
	awaitRunning(b, agent, n)
	return agent, pods
}

// awaitRunning waits until n pods are reported Running. A list of all pods costs both
// who asks and the agent more than a start may be disturbed by, so until there are n
// running containers it looks at their number alone, which is among the metrics; and again after
// half of the time that the rest will take by the pace until now.
func awaitRunning(b *testing.B, agent *Agent, n int) {
	b.Helper()
	const soonest, latest = 10 * time.Millisecond, time.Second
	for began := time.Now(); ; {
		running, err := agent.RunningContainers()
		if err == nil && running >= n {
			if running, err = runningPods(agent); running >= n {
				return
			}
		}
		took := time.Since(began)
		if took > 10*time.Minute {
			b.Fatalf("%d of %d run after %v: %v", running, n, took, err)
		}
		half := took * time.Duration(n-running) / time.Duration(2*max(running, 1))
		time.Sleep(min(max(half, soonest), latest))
	}
}

// runningPods returns how many pods are reported Running.
func runningPods(agent *Agent) (int, error) {
	list, err := agent.Pods()
	if err != nil {
		return 0, err
	}
	running := 0
	for i := range list.Items {
		if Running(&list.Items[i]) == nil {
			running++
		}
	}
	return running, nil
}

// awaitQuiet waits until the agent has nothing to do: a runtime tells who subscribes to
// its events what has happened for minutes, which is then looked into.
func awaitQuiet(b *testing.B, agent *Agent) {
	b.Helper()
	const look = 500 * time.Millisecond
	for last, began := agent.Cost(b).CPU, time.Now(); ; {
		time.Sleep(look)
		now := agent.Cost(b).CPU
		if now-last <= look/50 {
			return
		}
		if time.Since(began) > time.Minute {
			b.Fatal("the agent has been busy for a minute")
		}
		last = now
	}
}

// disband removes the agent and all pods.
func disband(b *testing.B, c *Cluster, agent *Agent) {
	b.Helper()
	if !agent.Exited() {
		agent.Stop(b)
	}
	if err := c.RemoveAll(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRestart kills the processes of 50 of 100 containers, one after the
// other, and measures the time from each kill to the event that another instance
// was started. Beside the agent a bare client does it for the other 50 pods, which
// creates and starts a container as soon as it hears of an exit.
//
//	go test -run '^$' -bench Restart -benchtime 1x -timeout 30m
func BenchmarkRestart(b *testing.B) {
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	took := map[string][]float64{}
	var order []string
	note := func(name string, times []float64) {
		if _, ok := took[name]; !ok {
			order = append(order, name)
		}
		took[name] = append(took[name], times...)
	}
	for b.Loop() {
		for _, who := range contestants() {
			agent, pods := crowd(b, c, who.options, 100)
			note(who.name, killAll(b, c, pods[:50]))
			agent.Stop(b)
			if who.name == "agent" {
				stop := restartBarely(b, c, pods[50:])
				note("bare", killAll(b, c, pods[50:]))
				stop()
			}
			disband(b, c, agent)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range order {
		b.Logf("%s: median %.0f ms, p99 %.0f ms, worst %.0f ms; ratio %.2f, p99 %.2f", name,
			1e3*median(took[name]), 1e3*percentile(took[name], 99), 1e3*slices.Max(took[name]),
			median(took[name])/median(took["bare"]), percentile(took[name], 99)/percentile(took["bare"], 99))
		b.ReportMetric(1e3*median(took[name]), name+"-ms")
		b.ReportMetric(1e3*percentile(took[name], 99), name+"-p99-ms")
	}
	b.ReportMetric(median(took["agent"])/median(took["bare"]), "ratio")
	b.ReportMetric(percentile(took["agent"], 99)/percentile(took["bare"], 99), "ratio-p99")
}

// killAll kills the container of each pod and returns how long it took, in seconds,
// until another one was started.
func killAll(b *testing.B, c *Cluster, pods []*v1.Pod) []float64 {
	b.Helper()
	events := c.WatchEvents(b, nil)
	// What a runtime tells of the past has arrived when this is over.
	time.Sleep(3 * time.Second)
	var took []float64
	for _, pod := range pods {
		name := FullName(pod)
		pid := c.PID(b, c.Newest(b, name, "c").Id)
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		took = append(took, events.AwaitStart(b, name, killed, time.Minute).Sub(killed).Seconds())
		time.Sleep(50 * time.Millisecond) // what follows a start is over
	}
	return took
}

// restartBarely restarts the pods' containers, when they exit, by the two calls that
// it takes, until stop is called.
func restartBarely(b *testing.B, c *Cluster, pods []*v1.Pod) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	restart := map[string]func() error{}
	for _, pod := range pods {
		sandbox, containers := c.Configs(b, FullName(pod))
		id := c.Sandboxes(b, FullName(pod))[0].Id
		restart[c.Newest(b, FullName(pod), "c").Id] = func() error {
			config := containers[len(containers)-1]
			config.Metadata.Attempt++
			created, err := c.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, Config: config, SandboxConfig: sandbox})
			if err != nil {
				return err
			}
			_, err = c.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId})
			return err
		}
	}
	var calls sync.WaitGroup
	var mu sync.Mutex
	c.WatchEvents(b, func(event *cri.ContainerEventResponse) {
		if event.ContainerEventType != cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		again := restart[event.ContainerId]
		if again == nil {
			return
		}
		delete(restart, event.ContainerId)
		calls.Go(func() {
			if err := again(); err != nil && ctx.Err() == nil {
				b.Errorf("the bare client: %v", err)
			}
		})
	})
	return func() {
		mu.Lock()
		clear(restart)
		mu.Unlock()
		calls.Wait()
		cancel()
	}
}

// BenchmarkIdle measures what 100 pods to which nothing happens cost in a minute:
// CPU time of the agent, and of containerd beyond what it uses with no agent at
// all, in percent of a core; and the memory of the agent.
//
//	go test -run '^$' -bench Idle -benchtime 1x -timeout 30m
func BenchmarkIdle(b *testing.B) {
	const pods = 100
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	costs := map[string][]float64{}
	for b.Loop() {
		for _, who := range contestants() {
			agent, _ := crowd(b, c, who.options, pods)
			time.Sleep(15 * time.Second) // what follows the starts is over
			begin := agent.Cost(b)
			both := measure(b, c, agent)
			agent.Stop(b)
			without := measure(b, c, nil)
			costs[who.name] = append(costs[who.name], both[0])
			costs[who.name+"-containerd"] = append(costs[who.name+"-containerd"], both[1]-without[1])
			costs[who.name+"-MB"] = append(costs[who.name+"-MB"], float64(begin.RSS)/1e6)
			b.Logf("%s: %.3f %% of a core, containerd %.3f %%, with no agent %.3f %%; %.1f MB resident",
				who.name, both[0], both[1], without[1], float64(begin.RSS)/1e6)
			disband(b, c, agent)
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, values := range costs {
		unit := name + "-%"
		if len(name) > 3 && name[len(name)-3:] == "-MB" {
			unit = name
		}
		b.ReportMetric(median(values), unit)
	}
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

// BenchmarkMemory measures the agent's resident memory with 20 and with 100 pods,
// and so what one more pod adds.
//
//	go test -run '^$' -bench Memory -benchtime 1x -timeout 30m
func BenchmarkMemory(b *testing.B) {
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	for b.Loop() {
		for _, who := range contestants() {
			if who.name == "generic" {
				continue
			}
			var rss [2]int64
			for i, n := range []int{20, 100} {
				agent, _ := crowd(b, c, who.options, n)
				time.Sleep(20 * time.Second)
				rss[i] = agent.Cost(b).RSS
				disband(b, c, agent)
			}
			each := float64(rss[1]-rss[0]) / 80
			b.Logf("%s: %.1f MB with 20 pods, %.1f MB with 100, %.0f kB for each further pod", who.name, float64(rss[0])/1e6, float64(rss[1])/1e6, each/1e3)
			b.ReportMetric(float64(rss[1])/1e6, who.name+"-MB")
			b.ReportMetric(each/1e3, who.name+"-kB/pod")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRemoval removes 100 pods with a grace period of 2 s, which their
// containers use up, and measures until nothing is left of them in the runtime.
// Beside the agent a bare client stops and removes the same pods, all at once.
//
//	go test -run '^$' -bench Removal -benchtime 3x -timeout 30m
func BenchmarkRemoval(b *testing.B) {
	const pods = 100
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	stubborn := []Option{Grace(2), func(pod *v1.Pod) { pod.Spec.Containers[0] = Sh("c", Stubborn) }}
	empty := func() error {
		if n := len(c.Sandboxes(b, "")); n > 0 {
			return fmt.Errorf("%d sandboxes are left", n)
		}
		return nil
	}
	took := map[string][]float64{}
	for b.Loop() {
		for _, who := range contestants() {
			agent, list := crowd(b, c, who.options, pods, stubborn...)
			began := time.Now()
			agent.Remove(b, list...)
			Eventually(b, 10*time.Minute, "all pods removed", empty)
			took[who.name] = append(took[who.name], time.Since(began).Seconds())
			disband(b, c, agent)
		}
		agent, _ := crowd(b, c, AgentOptions{}, pods, stubborn...)
		agent.Stop(b)
		began := time.Now()
		if err := c.EndAll(2); err != nil {
			b.Fatal(err)
		}
		Eventually(b, 10*time.Minute, "all pods removed", empty)
		took["bare"] = append(took["bare"], time.Since(began).Seconds())
	}
	b.ReportMetric(0, "ns/op")
	for name, times := range took {
		b.Logf("%s: %.2f s", name, times)
		b.ReportMetric(median(times), name+"-s")
	}
	b.ReportMetric(median(took["agent"])/median(took["bare"]), "ratio")
}

// percentile is the smallest value that at least p percent are not above.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}
