package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkTurnover creates n pods through the API, bound to the node, 20 each second, and deletes each 2 s after it
// was Running. The runtime is in memory, in the process of the benchmark: containerd starts and removes 4 pods a second
// on two processors. The client limits of the agents are 1000 requests a second.
//
//   - "start-p50-ms" and "start-p99-ms" are the time from the request to create a pod until a watch of the API shows it
//     Running, "end-p50-ms" and "end-p99-ms" that from the request to delete it to the deletion of the object.
//   - "start-growth" and "end-growth" are the medians of the last third of the pods to those of the first third: more
//     than 1 if a queue grows.
//   - "held" is the greatest number of pods at a time.
//   - "cpu-ms" and "plane-cpu-ms" are the CPU time of the agent and of the control plane for a pod.
//
// The agents take turns as the node of one control plane.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=1200 go test -run '^$' -bench Turnover -benchtime 3x -timeout 60m
func BenchmarkTurnover(b *testing.B) {
	forEachSize(b, "1200", benchmarkTurnover)
}

func benchmarkTurnover(b *testing.B, n int) {
	list := contestants(b, minikubelet, baseline, kubelet)
	c := benchCluster(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		who.options.Kubeconfig = kubeconfig
		who.options.Config = map[string]any{"kubeAPIQPS": 1000, "kubeAPIBurst": 1000, "eventRecordQPS": 0}
		endpoint, end := serveFake(b, filepath.Join(c.Dir, fmt.Sprintf("fake-%d", round)))
		who.options.Endpoint = endpoint
		agent := launch(b, c, who.options, n)
		awaitNode(b, plane)
		turnOver(b, plane, agent, fmt.Sprintf("t-%d", round), n,
			func(unit string, value float64) { took.add(who.name, unit, value) })
		retire(b, c, plane, agent)
		end()
	})
	took.report(b, list, "start-p99-ms", minikubelet, nil)
}

// serveFake serves a runtime in memory until end is called.
func serveFake(b *testing.B, socket string) (endpoint string, end func()) {
	b.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	rt, served := fake.New(fake.Options{}), make(chan error)
	go func() { served <- criserver.Serve(ctx, rt, listener) }()
	return "unix://" + socket, func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
		rt.Close()
		os.Remove(socket)
	}
}

// turnOver creates n pods and deletes them, and measures their lives.
func turnOver(b *testing.B, plane *ControlPlane, agent *Agent, prefix string, n int, add func(string, float64)) {
	b.Helper()
	const each, stay, tick = time.Second / 20, 2 * time.Second, 10 * time.Millisecond
	pods := plane.Client.CoreV1().Pods("default")
	created, running, deleted, gone := newMoments(), newMoments(), newMoments(), newMoments()
	ctx, cancel := context.WithTimeout(b.Context(), time.Duration(n)*each+5*time.Minute)
	defer cancel()
	followPods(b, ctx, plane, running, gone)
	all := benchPods(prefix, n, Grace(1), noToken)
	cpu, planeCPU, began := agent.Cost(b).CPU, plane.CPU(b), time.Now()
	var calls errgroup.Group
	held, next, first := 0, 0, 0 // all pods before the first are deleted
	for ; gone.count() < n; time.Sleep(tick) {
		if ctx.Err() != nil {
			b.Fatalf("%d of %d pods created, %d were Running, %d are gone", next, n, running.count(), gone.count())
		}
		for ; next < n && time.Since(began) >= time.Duration(next)*each; next++ {
			pod := all[next]
			pod.Spec.NodeName = NodeName
			created.now(pod.Name)
			calls.Go(func() error {
				_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
		}
		held = max(held, next-gone.count())
		for i := first; i < next; i++ {
			name := all[i].Name
			at, runs := running.of(name)
			if _, done := deleted.of(name); done {
				if i == first {
					first++
				}
			} else if runs && time.Since(at) > stay {
				deleted.now(name)
				calls.Go(func() error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
			}
		}
	}
	if err := calls.Wait(); err != nil {
		b.Fatal(err)
	}
	add("cpu-ms", 1000*(agent.Cost(b).CPU-cpu).Seconds()/float64(n))
	add("plane-cpu-ms", 1000*(plane.CPU(b)-planeCPU).Seconds()/float64(n))
	add("held", float64(held))
	for what, of := range map[string][2]*moments{"start": {created, running}, "end": {deleted, gone}} {
		ms := make([]float64, n)
		for i, pod := range all {
			from, _ := of[0].of(pod.Name)
			to, _ := of[1].of(pod.Name)
			ms[i] = 1000 * to.Sub(from).Seconds()
		}
		add(what+"-p50-ms", percentile(ms, 50))
		add(what+"-p99-ms", percentile(ms, 99))
		if third := n / 3; third > 0 {
			add(what+"-growth", median(ms[n-third:])/median(ms[:third]))
		}
	}
}
