package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkResize creates n pods through the API, bound to the node, and resizes them in place when all run, one after
// the other: the limits of CPU and memory of their container double.
//
//   - "actuated-ms" is the time from the request until the cgroup of the container has the new limit of memory.
//   - "ms" is that until a watch of the API shows the new resources in the status and no condition of a resize.
//
// The agents take turns as the node of one control plane. "ratio" is that to minikubelet.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench Resize -benchtime 3x -timeout 60m
func BenchmarkResize(b *testing.B) {
	forEachSize(b, "100", benchmarkResize)
}

func benchmarkResize(b *testing.B, n int) {
	list := contestants(b, minikubelet, baseline, kubelet)
	c := benchCluster(b)
	c.MakeCgroup(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	took, round := samples{}, 0
	takeTurns(b, list, func(who contestant) {
		round++
		who.options.Kubeconfig = kubeconfig
		// A kubelet without cgroups of its own resizes nothing; the harness gives it none otherwise.
		who.options.Config = map[string]any{"cgroupsPerQOS": true}
		agent := launch(b, c, who.options, n)
		awaitNode(b, plane)
		m := &nodeMeasurement{c: c, plane: plane, agent: agent}
		m.start(b, benchPods(fmt.Sprintf("resize-%d", round), n, Grace(0), noToken, func(pod *v1.Pod) {
			container := Sh("a", Forever)
			container.Resources = limited("100m", "32Mi")
			pod.Spec.Containers = []v1.Container{container}
		}))
		time.Sleep(5 * time.Second) // what follows the starts is over
		for _, pod := range m.pods {
			actuated, reported := resizeOne(b, c, plane, pod)
			took.add(who.name, "actuated-ms", 1000*actuated.Seconds())
			took.add(who.name, "ms", 1000*reported.Seconds())
		}
		m.deleteAll(b)
		retire(b, c, plane, agent)
	})
	took.report(b, list, "actuated-ms", minikubelet, func(name string) map[string]float64 {
		return map[string]float64{"actuated-ms-p99": percentile(took[name]["actuated-ms"], 99),
			"ms-p99": percentile(took[name]["ms"], 99)}
	})
}

// limited has these limits, and requests that many pods fit with.
func limited(cpu, memory string) v1.ResourceRequirements {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	return v1.ResourceRequirements{Requests: list("1m", "1Mi"), Limits: list(cpu, memory)}
}

// resizeOne doubles the limits of the pod, and returns the times until the cgroup and the status have them.
func resizeOne(b *testing.B, c *Cluster, plane *ControlPlane, pod *v1.Pod) (actuated, reported time.Duration) {
	b.Helper()
	limit := memoryLimit(b, c.PID(b, c.Newest(b, pod.Name, "a").Id))
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	watch := plane.WatchPods(b, ctx, pod.Namespace)
	defer watch.Stop()
	began, inForce := time.Now(), make(chan time.Duration, 1)
	if _, err := plane.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"200m","memory":"64Mi"}}}]}}`),
		metav1.PatchOptions{}, "resize"); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(inForce)
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if data, err := os.ReadFile(limit); err == nil && string(bytes.TrimSpace(data)) == fmt.Sprint(64<<20) {
				inForce <- time.Since(began)
				return
			}
		}
	}()
	is := resized("64Mi")
	for e := range watch.ResultChan() {
		if now, ok := e.Object.(*v1.Pod); ok && now.Name == pod.Name && is(now) == nil {
			reported = time.Since(began)
			break
		}
	}
	actuated = <-inForce
	if reported == 0 || actuated == 0 {
		b.Fatalf("pod %s is not resized within a minute", pod.Name)
	}
	return actuated, reported
}

// memoryLimit returns the file with the limit of the process's cgroup.
func memoryLimit(b *testing.B, pid int) string {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		// cgroups(7): the number of the hierarchy, its controllers, and the path. Version 2 names none; it is last.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if fields[1] == "memory" {
			return filepath.Join("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
		if fields[1] == "" {
			return filepath.Join("/sys/fs/cgroup", fields[2], "memory.max")
		}
	}
	b.Fatalf("no cgroup with memory: %s", data)
	return ""
}
