package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// BenchmarkLook is a look at the status of a node that has not changed, as every 10 seconds,
// with the sources of a real machine.
func BenchmarkLook(b *testing.B) {
	n, err := New(apitest.NewClientset(), "n", Options{
		Info: NewMachine(MachineOptions{StorageDir: b.TempDir()}), RequireStorage: true,
		Addresses: &HostAddresses{Hostname: "192.0.2.1"},
		Runtime:   func() runtime.Features { return runtime.Features{Name: "containerd", Version: "v2.1.4"} },
	})
	require.NoError(b, err)
	require.NoError(b, n.join(b.Context()))
	n.reportAfter = time.Hour
	b.ReportAllocs()
	for b.Loop() {
		if ready, err := n.report(b.Context()); err != nil || !ready {
			b.Fatal(ready, err)
		}
	}
}
