package plugin_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Each call of a plugin fails or hangs, or the plugin ends during it. Only the pods of the plugin wait or fail, until
// it answers again, and no goroutine is left.
func TestFaults(t *testing.T) {
	const nic = "example.com/nic"
	for _, tc := range []struct {
		call string
		// registers means that it is a call of the registration, or follows it.
		registers bool
		err       string
	}{
		{"GetDevicePluginOptions", true, "failed to get device plugin options"},
		{"ListAndWatch", true, "waiting for the "},
		{"GetPreferredAllocation", false, "the provider of example.com/gpu cannot choose devices"},
		{"Allocate", false, "the provider of example.com/gpu cannot allocate the devices"},
		{"PreStartContainer", false, "the provider of example.com/gpu cannot prepare the start with the devices"},
	} {
		for _, fault := range []string{"fails", "hangs", "ends"} {
			t.Run(tc.call+" "+fault, func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				n := newNode(t)
				serve := func(resource string) *sample {
					p := newSample(t, n.dir, resource, "a", "b")
					p.options = &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
					p.prefer = func(*api.ContainerPreferredAllocationRequest) []string { return []string{"b"} }
					p.allocate = func(context.Context, []string) (*api.ContainerAllocateResponse, error) {
						return &api.ContainerAllocateResponse{}, nil
					}
					p.preStart = func(context.Context, []string) error { return nil }
					p.start()
					require.NoError(t, p.register())
					return p
				}
				p, other := serve(gpu), serve(nic)
				n.counts(2, 2)
				n.eventually("the other plugin", func() bool {
					capacity, _, err := n.NodeResources(t.Context())
					q := capacity[nic]
					return err == nil && q.Value() == 2
				})

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				entered := make(chan struct{}, 1)
				p.setEntered(func(ctx context.Context, call string) error {
					if call != tc.call {
						return nil
					}
					select {
					case entered <- struct{}{}:
					default:
					}
					if fault == "fails" {
						return errors.New("broken")
					}
					<-ctx.Done()
					return ctx.Err()
				})
				pod := podOf("pod", 1)
				attempt := func() error {
					if tc.registers {
						if err := register(ctx, p.dir, &api.RegisterRequest{Version: api.Version,
							Endpoint: filepath.Base(p.socket), ResourceName: gpu}); err != nil {
							return err
						}
					}
					_, err := n.runWith(ctx, pod)
					return err
				}
				if tc.registers { // it has ended before, and registers again
					p.stop()
					n.counts(2, 0)
					p.start()
				}
				result := make(chan error, 1)
				go func() { result <- attempt() }()
				<-entered

				_, err := n.run(podWith("other", nic, 1))
				require.NoError(t, err, "the pods of other plugins go on")
				_, err = n.run(podWith("none", nic, 0))
				require.NoError(t, err)
				want := tc.err
				switch fault {
				case "hangs":
					if tc.call == "GetDevicePluginOptions" {
						want = "context canceled" // of the call of the registration
					}
					if tc.call != "ListAndWatch" { // the pod does not wait for it
						cancel()
					}
				case "ends":
					p.stop()
				}
				require.ErrorContains(t, <-result, want)

				p.setEntered(nil)
				if fault == "ends" {
					p.start()
				}
				if fault == "ends" || tc.registers {
					require.NoError(t, p.register())
				}
				n.eventually("the pod goes on", func() bool {
					_, err := n.run(pod)
					return err == nil
				})
				assert.Equal(t, "b", n.Devices(pod.UID)[0].Devices[0].ID)
				n.stop()
				p.stop()
				other.stop()
				n.eventually("no goroutine is left", func() bool { return goleak.Find(before) == nil })
			})
		}
	}
}
