package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkCalls measures what the calls that only read cost containerd while n pods run:
// its CPU time with that of its shims for one call of each kind, one after the other, in microseconds.
//
//	KUBELETKIT_E2E_PODS=10,100,300 go test -run '^$' -bench Calls -benchtime 1x
func BenchmarkCalls(b *testing.B) {
	forEachSize(b, "100,300", benchmarkCalls)
}

func benchmarkCalls(b *testing.B, n int) {
	c := benchCluster(b)
	agent, _ := crowd(b, c, AgentOptions{}, n)
	agent.Stop(b)
	sandbox, container := c.Sandboxes(b, "")[0], c.Containers(b, "")[0]
	pod := map[string]string{"io.kubernetes.pod.uid": sandbox.Labels["io.kubernetes.pod.uid"]}
	calls := map[string]func(context.Context) error{
		"ListPodSandbox": func(ctx context.Context) error {
			_, err := c.Runtime.ListPodSandbox(ctx,
				&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: pod}})
			return err
		},
		"ListContainers": func(ctx context.Context) error {
			_, err := c.Runtime.ListContainers(ctx,
				&cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: pod}})
			return err
		},
		"ListPodSandbox-all": func(ctx context.Context) error {
			_, err := c.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return err
		},
		"ListContainers-all": func(ctx context.Context) error {
			_, err := c.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
			return err
		},
		"PodSandboxStatus": func(ctx context.Context) error {
			_, err := c.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox.Id})
			return err
		},
		"ContainerStatus": func(ctx context.Context) error {
			_, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: container.Id})
			return err
		},
		"Status": func(ctx context.Context) error {
			_, err := c.Runtime.Status(ctx, &cri.StatusRequest{})
			return err
		},
		"ListPodSandboxStats": func(ctx context.Context) error {
			_, err := c.Runtime.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
			return err
		},
		"ListPodSandboxMetrics": func(ctx context.Context) error {
			_, err := c.Runtime.ListPodSandboxMetrics(ctx, &cri.ListPodSandboxMetricsRequest{})
			return err
		},
	}
	var list []contestant
	for name := range calls {
		list = append(list, contestant{name: name})
	}
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		times := 1000
		if strings.HasPrefix(who.name, "ListPodSandbox") && strings.HasSuffix(who.name, "s") { // the shims measure
			times = 10
		}
		before, mine, began := c.CPU(b), ownCPU(b), time.Now()
		for range times {
			if err := calls[who.name](b.Context()); err != nil {
				b.Fatalf("%s: %v", who.name, err)
			}
		}
		took.add(who.name, "µs", float64((c.CPU(b)-before).Microseconds())/float64(times))
		took.add(who.name, "client-µs", float64((ownCPU(b)-mine).Microseconds())/float64(times))
		took.add(who.name, "wall-µs", float64(time.Since(began).Microseconds())/float64(times))
	})
	took.report(b, list, "µs", "", nil)
}

// ownCPU returns the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
