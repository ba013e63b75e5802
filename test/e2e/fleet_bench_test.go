package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

const podsOfANode = 10

// BenchmarkFleet has n pods, 10 for each node, scheduled to the nodes of examples/hollow, which
// are all in one process. ReplicaSets create them.
//
//   - "ready-s" is the time from the start of the process until all nodes are Ready, and "s" that
//     from the creation of the ReplicaSets until all pods run.
//   - "created-s", "bound-s" and "running-s" are the times until the API server's watch has shown 99 %
//     of the pods created, bound to a node by the scheduler, and Running: which of them grows, and
//     which follows at once, says who is the slowest.
//   - "running" is the number of pods that run, if not all do within 3 minutes.
//   - "MB" is the resident memory of each process when all pods run, "cpu-s" its CPU time until
//     then, and "idle-cpu-%" that of the 20 seconds after it, in percent of a core.
//
// KUBELETKIT_E2E_PODS=1000,3000,10000 go test -run '^$' -bench Fleet -benchtime 1x -timeout 60m
func BenchmarkFleet(b *testing.B) {
	forEachSize(b, "1000,3000", benchmarkFleet)
}

var (
	nodesAreReady = regexp.MustCompile(`nodes are ready after (\S+)`)
	allPodsRun    = regexp.MustCompile(`all pods running after`)
)

func benchmarkFleet(b *testing.B, n int) {
	Need(b, "ip")
	took := samples{}
	for b.Loop() {
		fleetRound(b, n, took)
	}
	took.report(b, []contestant{{name: "hollow"}, {name: "apiserver"}, {name: "etcd"}, {name: "controllers"},
		{name: "scheduler"}}, "", "", nil)
}

// fleetNames are the programs as the lines of the benchmark have them.
var fleetNames = map[string]string{
	"hollow": "hollow", "kube-apiserver": "apiserver", "etcd": "etcd", "kube-controller-manager": "controllers", "kube-scheduler": "scheduler",
}

func fleetRound(b *testing.B, n int, took samples) {
	b.Helper()
	nodes := n / podsOfANode
	net, err := NewNetNS()
	if err != nil {
		b.Fatal(err)
	}
	defer net.Close()
	// Their default limits are those of clusters that share their API server with others.
	fast := []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
	plane := NewControlPlaneWith(b, net, map[string][]string{
		"kube-controller-manager": append(fast, "--allocate-node-cidrs=false", "--controllers=node-lifecycle-controller,taint-eviction-controller,replicaset-controller,serviceaccount-controller"),
		"kube-scheduler":          fast,
	})
	fleet := plane.NewFleet(b, nodes, podsOfANode)
	await := func(what string, limit time.Duration, expr *regexp.Regexp) []string {
		for began := time.Now(); time.Since(began) < limit; time.Sleep(100 * time.Millisecond) {
			if fleet.Exited() {
				b.Fatal("the fleet has ended")
			}
			if found := fleet.Said(expr); found != nil {
				return found
			}
		}
		b.Logf("not within %v: %s", limit, what)
		return nil
	}
	ready := await("nodes ready", 2*time.Minute, nodesAreReady)
	if ready == nil {
		b.Fatalf("%d nodes are too many", nodes)
	}
	d, err := time.ParseDuration(ready[1])
	if err != nil {
		b.Fatal(err)
	}
	took.add("hollow", "ready-s", d.Seconds())
	var sets strings.Builder
	for i := range podsOfANode {
		fmt.Fprintf(&sets, `
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: r%[1]d}
spec: {replicas: %[2]d, selector: {matchLabels: {r: r%[1]d}}, template: {metadata: {labels: {r: r%[1]d}},
  spec: {automountServiceAccountToken: false, containers: [{name: c, image: "example.com/image:1"}]}}}
`, i, nodes)
	}
	began := time.Now()
	stages := watchStages(b, plane.Client, n)
	plane.Apply(b, sets.String())
	running := n
	if await("all pods running", 3*time.Minute, allPodsRun) == nil {
		// The status of a ReplicaSet is behind under such a load.
		list, err := plane.Client.CoreV1().Pods("default").List(b.Context(),
			metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		if err != nil {
			b.Fatal(err)
		}
		running = len(list.Items)
	}
	took.add("hollow", "s", time.Since(began).Seconds())
	took.add("hollow", "running", float64(running))
	for stage, at := range stages() {
		took.add("hollow", stage+"-s", at.Sub(began).Seconds())
	}
	const idle = 20 * time.Second
	time.Sleep(3 * time.Second)
	before := plane.Costs(b, fleet)
	time.Sleep(idle)
	for name, after := range plane.Costs(b, fleet) {
		took.add(fleetNames[name], "MB", float64(after.RSS)/1e6)
		took.add(fleetNames[name], "cpu-s", before[name].CPU.Seconds())
		took.add(fleetNames[name], "idle-cpu-%", 100*float64(after.CPU-before[name].CPU)/float64(idle))
	}
}

// watchStages watches the pods of the default namespace. It returns a function that ends this and
// returns when 99 % of n pods had got to each stage; a stage that they did not get to is missing.
func watchStages(b *testing.B, client kubernetes.Interface, n int) (end func() map[string]time.Time) {
	b.Helper()
	reached := map[string]time.Time{}
	seen := map[string]map[types.UID]bool{"created": {}, "bound": {}, "running": {}}
	look := func(object any) { // calls do not overlap
		pod := object.(*v1.Pod)
		for stage, is := range map[string]bool{"created": true, "bound": pod.Spec.NodeName != "",
			"running": pod.Status.Phase == v1.PodRunning} {
			if is && !seen[stage][pod.UID] {
				seen[stage][pod.UID] = true
				if len(seen[stage]) == (99*n+99)/100 {
					reached[stage] = time.Now()
				}
			}
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, object any) { look(object) },
	}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return func() map[string]time.Time {
		cancel()
		factory.Shutdown()
		return reached
	}
}
