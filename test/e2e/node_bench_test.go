package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkNode creates n pods through the API at once, bound to the node, and deletes them
// when all run. The agents take turns as the node of one control plane.
//
//   - "start-p50-ms" and "start-p99-ms" are the time from the runtime's event of the start of a
//     pod's container to its phase Running in a watch of the API.
//   - "all-s" is the time from the first creation until all are Running.
//   - "gone-p50-ms" and "gone-p99-ms" are the time from the event of the container's exit to the
//     deletion of the object.
//   - "writes" is the number of writes to pods by the node, for each pod from its creation
//     to its end, and "reads" that of its gets. "event-writes" is the number of writes to events for
//     each pod. They are from the audit log of the API server.
//   - "rss-MB" is the resident memory of the agent while the pods run.
//
// KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench 'Node$' -benchtime 3x -timeout 60m
func BenchmarkNode(b *testing.B) {
	forEachSize(b, "100", benchmarkNode)
}

func benchmarkNode(b *testing.B, n int) {
	list := contestants(b, minikubelet, baseline, kubelet)
	c := benchCluster(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		who.options.Kubeconfig = kubeconfig
		agent := launch(b, c, who.options, n)
		Eventually(b, time.Minute, "node ready", func() error {
			node, err := plane.Client.CoreV1().Nodes().Get(b.Context(), NodeName, metav1.GetOptions{})
			if err == nil {
				err = nodeReady(node)
			}
			return err
		})
		measureNode(b, c, plane, agent, n, round, func(unit string, value float64) { took.add(who.name, unit, value) })
		agent.Kill(b)
		// The next agent is another one and would wait for the end of the lease.
		if err := plane.Client.CoordinationV1().Leases("kube-node-lease").Delete(b.Context(), NodeName, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	})
	took.report(b, list, "start-p50-ms", "", nil)
}

// moments are the times of something, by the name of the pod.
type moments struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (m *moments) now(pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.at[pod]; !ok {
		m.at[pod] = time.Now()
	}
}

func (m *moments) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// last returns the latest of the moments.
func (m *moments) last() (latest time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.at {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// since returns how long after those of the other each moment came, in milliseconds.
func (m *moments) since(other *moments) (ms []float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	for pod, at := range m.at {
		if begin, ok := other.at[pod]; ok {
			ms = append(ms, float64(at.Sub(begin).Microseconds())/1000)
		}
	}
	return ms
}

func newMoments() *moments { return &moments{at: map[string]time.Time{}} }

func measureNode(b *testing.B, c *Cluster, plane *ControlPlane, agent *Agent, n, round int, add func(unit string, value float64)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	pods := plane.Client.CoreV1().Pods("default")
	started, ended, running, gone := newMoments(), newMoments(), newMoments(), newMoments()
	c.WatchEvents(b, func(e *cri.ContainerEventResponse) {
		meta := e.GetPodSandboxStatus().GetMetadata()
		if meta == nil || e.ContainerId == e.GetPodSandboxStatus().GetId() {
			return
		}
		switch e.ContainerEventType {
		case cri.ContainerEventType_CONTAINER_STARTED_EVENT:
			started.now(meta.Name)
		case cri.ContainerEventType_CONTAINER_STOPPED_EVENT:
			ended.now(meta.Name)
		}
	})
	followPods(b, ctx, plane, running, gone)
	await := func(what string, m *moments) {
		b.Helper()
		Eventually(b, 5*time.Minute, what, func() error {
			if got := m.count(); got < n {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
	}
	each := func(f func(name string) error) {
		b.Helper()
		var g errgroup.Group
		g.SetLimit(32)
		for i := range n {
			g.Go(func() error { return f(fmt.Sprintf("p-%d-%d", round, i)) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	before := plane.Audited(b)
	begin := time.Now()
	each(func(name string) error {
		pod := MakePod(name, Grace(2), Main(Sh("c", Forever)))
		pod.Spec.NodeName = NodeName
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	await("all run", running)
	add("all-s", time.Since(begin).Seconds())
	add("rss-MB", float64(agent.Cost(b).RSS)/(1<<20))
	time.Sleep(3 * time.Second) // what is due after the start
	each(func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
	await("all are gone", gone)
	time.Sleep(3 * time.Second)
	after := plane.Audited(b)
	starts, ends := running.since(started), gone.since(ended)
	add("start-p50-ms", percentile(starts, 50))
	add("start-p99-ms", percentile(starts, 99))
	add("gone-p50-ms", percentile(ends, 50))
	add("gone-p99-ms", percentile(ends, 99))
	for unit, calls := range map[string][]string{
		"writes": {"create pods", "patch pods", "update pods", "delete pods"}, "reads": {"get pods"}, "event-writes": {"create events", "patch events"},
	} {
		sum := 0
		for _, call := range calls {
			sum += after[call] - before[call]
		}
		add(unit, float64(sum)/float64(n))
	}
}

// followPods notes when each pod runs, and when its object is gone, until ctx ends.
func followPods(b *testing.B, ctx context.Context, plane *ControlPlane, running, gone *moments) {
	b.Helper()
	watcher := plane.WatchPods(b, ctx, "default")
	go func() {
		for e := range watcher.ResultChan() {
			pod, ok := e.Object.(*v1.Pod)
			if !ok {
				if ctx.Err() == nil {
					b.Errorf("the watch has failed: %+v", e.Object)
				}
				return
			}
			if pod.Status.Phase == v1.PodRunning {
				running.now(pod.Name)
			}
			if e.Type == watch.Deleted {
				gone.now(pod.Name)
			}
		}
	}()
}
