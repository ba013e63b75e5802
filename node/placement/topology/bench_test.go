package topology_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// cpuSetter sets the CPUs of no container.
type cpuSetter struct{}

func (cpuSetter) SetCPUSet(context.Context, runtime.ContainerID, string) error { return nil }

// listed is a provider of devices that is ready when its devices were delivered.
type listed struct {
	devices.Provider
	list  []devices.Device
	ready chan struct{}
}

func (l listed) Watch(ctx context.Context, update func([]devices.Device)) error {
	update(l.list)
	close(l.ready)
	<-ctx.Done()
	return nil
}

// BenchmarkAdmit is the admission and the end of a pod with 4 devices of 8, 16 exclusive CPUs of 128 and 8 GiB, on two
// memory nodes with the policy single-numa-node; the limit is 1 ms.
func BenchmarkAdmit(b *testing.B) {
	dir := b.TempDir()
	m := numa.Machine{Nodes: []numa.Node{{ID: 0, Memory: 256 << 30}, {ID: 1, Memory: 256 << 30}}}
	for id := range 128 { // two sockets with 32 cores and 64 threads each
		socket := id / 32 % 2
		m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: id % 64, Socket: socket * 32, UncoreCache: id % 64 / 8 * 8,
			Node: socket})
	}
	exclusive, err := cpus.New(m, filepath.Join(dir, cpus.CheckpointName), cpuSetter{},
		cpus.Options{ReservedCount: 2})
	require.NoError(b, err)
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	mem, err := memory.New(filepath.Join(dir, memory.FileName), m, memory.Options{
		Reserved: []memory.Reservation{{Node: 0, Limits: reserved}}, NodeReserved: reserved,
	})
	require.NoError(b, err)
	ports, err := devices.New(filepath.Join(dir, devices.CheckpointName), devices.Options{})
	require.NoError(b, err)
	provider := listed{Provider: devices.Fixed(port, nil), ready: make(chan struct{})}
	for i := range 8 {
		provider.list = append(provider.list, devices.Device{ID: fmt.Sprint("port-", i), Nodes: numa.Of(i / 4)})
	}
	ctx, cancel := context.WithCancel(b.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = ports.Serve(ctx, provider) })
	defer serving.Wait()
	defer cancel()
	<-provider.ready

	quiet := &nodefake.Node{Log: logr.Discard()}
	require.NoError(b, errors.Join(exclusive.Join(quiet), mem.Join(quiet)))
	manager := newManager(b, topology.Options{
		Policy: policy(b, topology.PolicySingleNUMANode, m, topology.PolicyOptions{})}, exclusive, mem, ports)
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("16"), v1.ResourceMemory: resource.MustParse("8Gi"),
		port: resource.MustParse("4")}
	p := testpod.New("pod",
		testpod.Container(v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: list, Limits: list}}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manager.Admit(lifecycle.AdmitRequest{Pod: p}); err != nil {
			b.Fatal(err)
		}
		exclusive.Refused(p)
		mem.Refused(p)
		ports.Refused(p)
	}
	b.StopTimer()
	_, err = manager.Admit(lifecycle.AdmitRequest{Pod: p})
	require.NoError(b, err)
	require.Equal(b, 16, exclusive.Exclusive(p.UID, "main").Size())
	require.NotEmpty(b, mem.Of(p.UID, "main"))
	require.Len(b, ports.Devices(p.UID)[0].Devices, 4)
}
