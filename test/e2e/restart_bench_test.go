package e2e

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkRestart kills the processes of all of n containers, but of no more than 50,
// one after the other, and measures the time from each kill to the event that another
// instance was started. The bare client creates and starts a container when it
// receives the event of an exit.
//
//	KUBELETKIT_E2E_PODS=10,50,100 go test -run '^$' -bench Restart -benchtime 1x -timeout 60m
func BenchmarkRestart(b *testing.B) {
	forEachSize(b, "100", benchmarkRestart)
}

func benchmarkRestart(b *testing.B, n int) {
	list := contestants(b, bareClient, minikubelet, baseline, relisting, kubelet)
	c := benchCluster(b)
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		agent, pods := crowd(b, c, who.options, n)
		pods = pods[:min(n, 50)]
		if who.name == bareClient {
			agent.Stop(b)
			stop := restartBarely(b, c, pods)
			defer stop()
		}
		took.add(who.name, "ms", killAll(b, c, pods)...)
		disband(b, c, agent)
	})
	took.report(b, list, "ms", bareClient, func(name string) map[string]float64 {
		p99 := percentile(took[name]["ms"], 99)
		metrics := map[string]float64{"ms-p99": p99}
		if name != bareClient && len(took[bareClient]["ms"]) > 0 {
			metrics["ratio-p99"] = p99 / percentile(took[bareClient]["ms"], 99)
		}
		return metrics
	})
}

// killAll kills the container of each pod and returns how long it took, in
// milliseconds, until another one was started.
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
		took = append(took, 1e3*events.AwaitStart(b, name, killed, time.Minute).Sub(killed).Seconds())
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
			created, err := c.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, Config: config,
				SandboxConfig: sandbox})
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
