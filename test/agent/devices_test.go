package agent_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	devicesfake "github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A pod waits for its devices, has them in its status, and keeps them when the agent is restarted.
func TestDevicesOfAPod(t *testing.T) {
	const port = "example.com/port"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, p := fake.New(fake.Options{}), devicesfake.New(port)
		start := func() *node {
			return startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
				manager, err := devices.New(filepath.Join(dir, "devices"),
					devices.Options{Providers: []devices.Provider{p}})
				require.NoError(t, err)
				o.Join = []lifecycle.Component{manager}
			})
		}
		n := start()
		web := makePod("web")
		web.Spec.Containers[0].Resources.Limits = v1.ResourceList{port: resource.MustParse("1")}
		p.Set(devices.Device{ID: "a"})
		n.after(time.Second)
		n.source.Set(web)
		status := func(health v1.ResourceHealthStatus) []v1.ResourceStatus {
			return []v1.ResourceStatus{{Name: port, Resources: []v1.ResourceHealth{{ResourceID: "a", Health: health}}}}
		}
		got := n.after(time.Second)["web"].Status
		assert.Equal(t, v1.PodRunning, got.Phase)
		assert.Equal(t, status(v1.ResourceHealthStatusHealthy), got.ContainerStatuses[0].AllocatedResourcesStatus)
		p.Set(devices.Device{ID: "a", Unhealthy: true})
		got = n.after(time.Millisecond)["web"].Status
		assert.Equal(t, status(v1.ResourceHealthStatusUnhealthy), got.ContainerStatuses[0].AllocatedResourcesStatus)

		n.stop(t)
		n = start()
		n.source.Set(web)
		got = n.after(time.Minute)["web"].Status
		assert.Equal(t, v1.PodRunning, got.Phase)
		assert.Zero(t, got.ContainerStatuses[0].RestartCount)
		assert.Equal(t, status(v1.ResourceHealthStatusUnhealthy), got.ContainerStatuses[0].AllocatedResourcesStatus)

		// After a reboot, it waits for the device.
		n.stop(t)
		rt.Exit(fake.Target{Pod: "web"}, 137)
		n = start()
		defer n.stop(t)
		n.source.Set(web)
		got = n.after(time.Minute)["web"].Status
		require.Equal(t, v1.PodRunning, got.Phase)
		require.Nil(t, got.ContainerStatuses[0].State.Running)
		waits := got.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waits)
		assert.Equal(t, v1.ContainerStateWaiting{
			Reason:  "WaitingForDevices",
			Message: `container "main": waiting for the device "a" of example.com/port: it is unhealthy`,
		}, *waits)
		assert.NotNil(t, got.ContainerStatuses[0].LastTerminationState.Terminated)
		p.Set(devices.Device{ID: "a"})
		assert.NotNil(t, n.after(time.Second)["web"].Status.ContainerStatuses[0].State.Running, "it is synced at once")
	})
}
