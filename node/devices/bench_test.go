package devices_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// pushed is a provider whose test calls update.
type pushed struct {
	devices.Base
	update chan func([]devices.Device)
}

func (p pushed) Resource() v1.ResourceName { return port }

func (p pushed) Watch(ctx context.Context, update func([]devices.Device)) error {
	p.update <- update
	<-ctx.Done()
	return nil
}

func (p pushed) Allocate(context.Context, devices.Request) (runtime.ContainerEdits, error) {
	return runtime.ContainerEdits{}, nil
}

func servePushed(t testing.TB, m *devices.Manager) (update func([]devices.Device)) {
	p := pushed{update: make(chan func([]devices.Device))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Serve(ctx, p) }()
	t.Cleanup(func() { cancel(); <-done })
	return <-p.update
}

func numbered(n int) (out []devices.Device) {
	for i := range n {
		out = append(out, devices.Device{ID: fmt.Sprintf("device-%07d", i), Nodes: numa.Of(i % 4)})
	}
	return out
}

// BenchmarkAllocate is the admission and the end of a pod with 4 devices of 8, with hints; the limit is 1 ms.
func BenchmarkAllocate(b *testing.B) {
	for _, n := range []int{8, 1000, 100_000} {
		b.Run(fmt.Sprintf("%d devices", n), func(b *testing.B) {
			m, err := devices.New("", devices.Options{})
			require.NoError(b, err)
			servePushed(b, m)(numbered(n))
			pod := podOf("pod", 4)
			for b.Loop() {
				m.Hints(pod, &pod.Spec.Containers[0])
				if _, err := m.Admit(lifecycle.AdmitRequest{Pod: pod}); err != nil {
					b.Fatal(err)
				}
				m.Refused(pod)
			}
		})
	}
}

// BenchmarkWithout is what a pod without devices costs.
func BenchmarkWithout(b *testing.B) {
	m, err := devices.New("", devices.Options{})
	require.NoError(b, err)
	pod := podOf("pod", 0)
	delete(pod.Spec.Containers[0].Resources.Limits, port)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = m.Admit(lifecycle.AdmitRequest{Pod: pod})
		_, _ = m.Prepare(b.Context(), lifecycle.PrepareRequest{Pod: pod})
	}
}

// A provider may have 10⁶ devices: a node with them is slower, and works.
func TestMillionDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a second")
	}
	m, err := devices.New(t.TempDir()+"/checkpoint", devices.Options{})
	require.NoError(t, err)
	update := servePushed(t, m)
	update(numbered(1_000_000))
	pod := podOf("pod", 4)
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod})
	require.NoError(t, err)
	_, err = m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
	require.NoError(t, err)
	require.Len(t, m.Devices(pod.UID)[0].Devices, 4)
}
