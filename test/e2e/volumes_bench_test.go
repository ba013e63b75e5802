package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkVolumes creates n pods through the API at once, bound to the node, once without
// volumes and once with five each: two config maps, a secret, a projected token and an emptyDir.
// It measures until all are Running in a watch of the API, and until all are gone. The objects are
// the same for all pods, as those of one application. A contestant with the ending "-plain" is
// that agent with the pods without volumes, and one with "-bound" with five hostPath volumes, whose
// directories are there: what the runtime needs for five mounts. "ratio" is that of each line to
// "agent-plain". "p99-ms" is the time from the creation of a pod until it is Running. "plane-cpu-s" is the CPU time of the control plane, "calls" the requests of the
// node, for each pod.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Volumes -benchtime 2x -timeout 60m
func BenchmarkVolumes(b *testing.B) {
	forEachSize(b, "100", benchmarkVolumes)
}

// The kinds of pods, as endings of contestants; "" is the pods with the five volumes.
const (
	plain = "-plain"
	bound = "-bound"
)

func benchmarkVolumes(b *testing.B, n int) {
	c := benchCluster(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	makeVolumeObjects(b, plane)
	var list []contestant
	for _, who := range contestants(b, minikubelet, baseline, kubelet) {
		for _, kind := range []string{plain, bound, ""} {
			list = append(list, contestant{who.name + kind, who.options})
		}
	}
	took, round := samples{}, 0
	measure := func(who contestant, add func(unit string, value float64)) {
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
		_, kind, ends := strings.Cut(who.name, "-")
		if ends {
			kind = "-" + kind
		}
		create := func(ctx context.Context, name string, _ int) error {
			_, err := plane.Client.CoreV1().Pods("default").Create(ctx, volumePod(name, kind, c.Dir),
				metav1.CreateOptions{})
			return err
		}
		measureLives(b, c, plane, agent, fmt.Sprintf("p-%d", round), n, create, add)
		retire(b, c, plane, agent)
	}
	measure(list[0], func(string, float64) {}) // it makes the bridge and fills the caches
	takeTurns(b, list, func(who contestant) {
		measure(who, func(unit string, value float64) { took.add(who.name, unit, value) })
	})
	took.report(b, list, "s", minikubelet+plain, nil)
}

// makeVolumeObjects makes what the volumes of volumePod contain.
func makeVolumeObjects(b *testing.B, plane *ControlPlane) {
	b.Helper()
	core := plane.Client.CoreV1()
	for _, name := range []string{"bench-root-ca", "bench-config"} {
		conf := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": name, "b": name}}
		if _, err := core.ConfigMaps("default").Create(b.Context(), conf, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bench-secret"},
		StringData: map[string]string{"password": "hunter-1"}}
	if _, err := core.Secrets("default").Create(b.Context(), secret, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// volumePod is a pod of a kind.
func volumePod(name, kind, dir string) *v1.Pod {
	pod := MakePod(name, Grace(2), Main(Sh("c", Forever)))
	pod.Spec.NodeName = NodeName
	pod.Spec.AutomountServiceAccountToken = ptr(false)
	if kind == plain {
		return pod
	}
	config := func(name string) v1.VolumeSource {
		return v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}
	}
	for i, source := range []v1.VolumeSource{
		config("bench-root-ca"), config("bench-config"), {Secret: &v1.SecretVolumeSource{SecretName: "bench-secret"}},
		{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
			ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr(int64(3600))},
		}}}},
		{EmptyDir: &v1.EmptyDirVolumeSource{}},
	} {
		if kind == bound {
			source = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}
		}
		name := fmt.Sprintf("v%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: name, MountPath: "/mnt/" + name})
	}
	return pod
}

// measureLives creates n pods by create, waits until all are Running, deletes them, and waits until all are gone. The
// names of the pods begin with prefix.
func measureLives(b *testing.B, c *Cluster, plane *ControlPlane, agent *Agent, prefix string, n int,
	create func(ctx context.Context, name string, i int) error, add func(unit string, value float64)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	pods := plane.Client.CoreV1().Pods("default")
	created, running, gone := newMoments(), newMoments(), newMoments()
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
	each := func(f func(name string, i int) error) {
		b.Helper()
		var g errgroup.Group
		g.SetLimit(32)
		for i := range n {
			g.Go(func() error { return f(fmt.Sprintf("%s-%d", prefix, i), i) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	system, runtime, cost, control, calls, began := SystemCPU(b), c.CPU(b), agent.Cost(b).CPU, plane.CPU(b),
		total(plane.Audited(b)), time.Now()
	each(func(name string, i int) error {
		created.now(name)
		return create(ctx, name, i)
	})
	await("all run", running)
	add("s", running.last().Sub(began).Seconds())
	add("p99-ms", percentile(running.since(created), 99))
	add("cpu-s", (agent.Cost(b).CPU - cost).Seconds())
	add("runtime-cpu-s", (c.CPU(b) - runtime).Seconds())
	add("plane-cpu-s", (plane.CPU(b) - control).Seconds())
	add("system-cpu-s", (SystemCPU(b) - system).Seconds())
	add("calls", float64(total(plane.Audited(b))-calls)/float64(n))
	time.Sleep(2 * time.Second) // what is due after the start
	began, cost = time.Now(), agent.Cost(b).CPU
	each(func(name string, _ int) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
	await("all are gone", gone)
	add("gone-s", gone.last().Sub(began).Seconds())
	add("gone-cpu-s", (agent.Cost(b).CPU - cost).Seconds())
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
