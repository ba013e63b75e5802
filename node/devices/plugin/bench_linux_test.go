package plugin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
)

// cpuTime is the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkHealth is a change of the health of 1000 devices of a plugin, of which 100 pods have 4 each, once a second:
// the CPU of the manager and the plugin, of a core. The limit is 1 %.
func BenchmarkHealth(b *testing.B) {
	n := newNode(b)
	n.stop()
	changed, pods := make(chan struct{}, 1), 0
	n.node = &nodefake.Node{Log: n.node.Log, Do: func(method string) {
		switch method {
		case "RefreshStatus":
			pods++
		case "NodeStatusChanged":
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}}
	n.start()
	defer n.stop()
	p := newSample(b, n.dir, gpu)
	p.allocate = func(context.Context, []string) (*api.ContainerAllocateResponse, error) {
		return &api.ContainerAllocateResponse{}, nil
	}
	lists := [2][]*api.Device{}
	for i := range 1000 {
		for j, health := range []string{api.Healthy, api.Unhealthy} {
			lists[j] = append(lists[j], &api.Device{
				ID: fmt.Sprintf("device-%04d", i), Health: health, Topology: &api.TopologyInfo{
					Nodes: []*api.NUMANode{{ID: int64(i % 2)}}},
			})
		}
	}
	p.set(lists[0]...)
	p.start()
	require.NoError(b, p.register())
	<-changed
	for i := range 100 {
		_, err := n.run(podOf(fmt.Sprint("pod", i), 4))
		require.NoError(b, err)
	}
	i, began := 0, cpuTime(b)
	for b.Loop() {
		i++
		p.set(lists[i%2]...)
		<-changed // after the pods
	}
	used := cpuTime(b) - began
	require.Equal(b, 100*i, pods)
	b.ReportMetric(100*used.Seconds()/float64(i), "%/core")
}
