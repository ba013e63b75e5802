package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
//   - "all-s" is the time from the first creation until all are Running. "plain-s" is that of
//     pods without a service account token, from when the runtime has none of the pods of before, "manifests-s" that of
//     the same pods as manifests of an agent that has no API server, and "to-manifests" the ratio of these two.
//     "plain-cpu-s" and "manifests-cpu-s" are the CPU time of the agent in them, and "plane-cpu-s" that of the control
//     plane, which has the same processors.
//   - "gone-p50-ms" and "gone-p99-ms" are the time from the event of the container's exit to the
//     deletion of the object, when all pods are deleted at once, and "gone-one-p50-ms" that
//     of 10 pods that are deleted one after the other.
//   - "writes" is the number of writes to pods by the node, for each pod from its creation
//     to its end, and "reads" that of its gets. The others are the requests of each kind for
//     each pod, as in "patch:pods/status". They are from the audit log of the API server.
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
	// Some that do not count: they make the bridge and fill the caches.
	agent, _ := crowd(b, c, AgentOptions{}, 10)
	disband(b, c, agent)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		add := func(unit string, value float64) { took.add(who.name, unit, value) }
		manifests := benchPods(fmt.Sprintf("m-%d", round), n, Grace(2))
		agent := launch(b, c, who.options, n)
		start := stageStart(b, agent, manifests)
		cpu, begin := agent.Cost(b).CPU, time.Now()
		start()
		asManifests := time.Since(begin).Seconds()
		add("manifests-cpu-s", (agent.Cost(b).CPU - cpu).Seconds())
		disband(b, c, agent)

		who.options.Kubeconfig = kubeconfig
		agent = launch(b, c, who.options, n)
		awaitNode(b, plane)
		m := &nodeMeasurement{c: c, plane: plane, agent: agent, add: add}
		m.life(b, fmt.Sprintf("p-%d", round), n)
		awaitRemoved(b, c)
		cpu, planeCPU := agent.Cost(b).CPU, plane.CPU(b)
		plain := m.start(b, benchPods(fmt.Sprintf("q-%d", round), n, Grace(2), noToken))
		add("plain-cpu-s", (agent.Cost(b).CPU - cpu).Seconds())
		add("plane-cpu-s", (plane.CPU(b) - planeCPU).Seconds())
		add("plain-s", plain)
		add("manifests-s", asManifests)
		add("to-manifests", plain/asManifests)
		m.deleteEach(b, min(n, 10))
		m.deleteAll(b)
		retire(b, c, plane, agent)
	})
	took.report(b, list, "start-p50-ms", "", nil)
}

// noToken leaves out the volume with the token of the service account.
func noToken(pod *v1.Pod) { pod.Spec.AutomountServiceAccountToken = new(bool) }

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

func (m *moments) of(pod string) (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok = m.at[pod]
	return at, ok
}

func (m *moments) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// sorted returns the moments, the earliest first.
func (m *moments) sorted() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.at), time.Time.Compare)
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

// nodeMeasurement measures the pods of an agent that is a node.
type nodeMeasurement struct {
	c     *Cluster
	plane *ControlPlane
	agent *Agent
	add   func(unit string, value float64)

	pods                          []*v1.Pod // that run
	started, ended, running, gone *moments
	unwatch                       func()
}

// start creates the pods, bound to the node, and returns the time in seconds until all are
// Running.
func (m *nodeMeasurement) start(b *testing.B, pods []*v1.Pod) float64 {
	b.Helper()
	m.pods = pods
	m.started, m.ended, m.running, m.gone = newMoments(), newMoments(), newMoments(), newMoments()
	m.watch(b)
	begin := time.Now()
	m.each(b, pods, func(pod *v1.Pod) error {
		pod.Spec.NodeName = NodeName
		_, err := m.plane.Client.CoreV1().Pods(pod.Namespace).Create(b.Context(), pod, metav1.CreateOptions{})
		return err
	})
	m.await(b, "all run", m.running, len(pods))
	return time.Since(begin).Seconds()
}

// watch notes when the runtime and the API show what happens to the pods, until it is called again.
func (m *nodeMeasurement) watch(b *testing.B) {
	b.Helper()
	if m.unwatch != nil {
		m.unwatch() // a second stream of events costs the runtime as much as the first
	}
	started, ended, running, gone := m.started, m.ended, m.running, m.gone
	events := m.c.WatchEvents(b, func(e *cri.ContainerEventResponse) {
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
	ctx, cancel := context.WithCancel(b.Context())
	followPods(b, ctx, m.plane, running, gone)
	m.unwatch = func() { cancel(); events.Stop() }
}

func (m *nodeMeasurement) await(b *testing.B, what string, of *moments, n int) {
	b.Helper()
	Eventually(b, 5*time.Minute, what, func() error {
		if got := of.count(); got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// each calls f for each pod, several at a time.
func (m *nodeMeasurement) each(b *testing.B, pods []*v1.Pod, f func(*v1.Pod) error) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	for _, pod := range pods {
		g.Go(func() error { return f(pod) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// followPods notes when each pod runs, and when its object is gone, until ctx ends. A watch that
// the API server ends, as it does under load, is followed by another list.
func followPods(b *testing.B, ctx context.Context, plane *ControlPlane, running, gone *moments) {
	b.Helper()
	pods := plane.Client.CoreV1().Pods("default")
	known := map[string]bool{}
	saw := func(pod *v1.Pod, deleted bool) {
		known[pod.Name] = !deleted
		if pod.Status.Phase == v1.PodRunning {
			running.now(pod.Name)
		}
		if deleted {
			gone.now(pod.Name)
		}
	}
	list := func() (version string, err error) {
		all, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		is := map[string]bool{}
		for i := range all.Items {
			is[all.Items[i].Name] = true
			saw(&all.Items[i], false)
		}
		for name, was := range known {
			if was && !is[name] {
				known[name] = false
				gone.now(name)
			}
		}
		return all.ResourceVersion, nil
	}
	version, err := list()
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			if w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: version}); err == nil {
				for e := range w.ResultChan() {
					if pod, ok := e.Object.(*v1.Pod); ok {
						saw(pod, e.Type == watch.Deleted)
					}
				}
			}
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(50 * time.Millisecond):
				}
				if version, err = list(); err == nil {
					break
				}
			}
		}
	}()
}

// deleteAll deletes the pods and waits until they are gone. It returns the times from the exits
// of their containers, in milliseconds.
func (m *nodeMeasurement) deleteAll(b *testing.B) []float64 {
	b.Helper()
	m.each(b, m.pods, func(pod *v1.Pod) error {
		return m.plane.Client.CoreV1().Pods(pod.Namespace).Delete(b.Context(), pod.Name, metav1.DeleteOptions{})
	})
	m.await(b, "all are gone", m.gone, len(m.pods))
	return m.gone.since(m.ended)
}

// deleteEach deletes the first pods, one after the other.
func (m *nodeMeasurement) deleteEach(b *testing.B, n int) {
	b.Helper()
	var ms []float64
	all := m.pods
	for _, pod := range all[:n] {
		m.pods = []*v1.Pod{pod}
		m.gone, m.ended = newMoments(), newMoments()
		m.watch(b)
		ms = append(ms, m.deleteAll(b)...)
	}
	m.add("gone-one-p50-ms", percentile(ms, 50))
	m.pods, m.gone, m.ended = all[n:], newMoments(), newMoments()
	m.watch(b)
}

// life measures n pods from their creation to their end.
func (m *nodeMeasurement) life(b *testing.B, name string, n int) {
	b.Helper()
	before := m.plane.Audited(b)
	m.add("all-s", m.start(b, benchPods(name, n, Grace(2))))
	m.add("rss-MB", float64(m.agent.Cost(b).RSS)/(1<<20))
	time.Sleep(3 * time.Second) // what is due after the start
	ends := m.deleteAll(b)
	time.Sleep(3 * time.Second)
	starts := m.running.since(m.started)
	m.add("start-p50-ms", percentile(starts, 50))
	m.add("start-p99-ms", percentile(starts, 99))
	m.add("gone-p50-ms", percentile(ends, 50))
	m.add("gone-p99-ms", percentile(ends, 99))
	writes, reads := 0, 0
	for call, count := range m.plane.Audited(b) {
		count -= before[call]
		verb, resource, _ := strings.Cut(call, " ")
		switch {
		case count == 0 || strings.HasSuffix(resource, "leases"):
			continue
		case !strings.HasPrefix(resource, "pods"):
		case verb == "get":
			reads += count
		case verb != "list" && verb != "watch":
			writes += count
		}
		m.add(verb+":"+resource, float64(count)/float64(n))
	}
	m.add("writes", float64(writes)/float64(n))
	m.add("reads", float64(reads)/float64(n))
}
