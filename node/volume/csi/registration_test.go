package csi_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
)

var v1Now = metav1.Now()

func TestNew(t *testing.T) {
	_, err := csi.New(nil, "relative", csi.Options{CallTimeout: -1})
	assert.ErrorContains(t, err, "cluster is nil")
	assert.ErrorContains(t, err, `"relative" is not an absolute path`)
	assert.ErrorContains(t, err, "negative")
}

func TestRegistration(t *testing.T) {
	r := newRig(t, csidriver.Options{Links: true, Settings: csidriver.Settings{NodeID: "id", MaxVolumes: 7,
		Topology: map[string]string{"zone": "a"}}})
	want := csi.NodeDriver{Name: csidriver.DefaultName, NodeID: "id", MaxVolumes: 7,
		Topology: map[string]string{"zone": "a"}}
	got, _ := r.cluster.driver(csidriver.DefaultName)
	assert.Equal(t, want, got)

	of := r.registration()
	of.Socket += "-other"
	assert.ErrorContains(t, r.plugin.Validate(of), "another driver with the same name is registered")
	of.Versions = []string{"0.3.0", "2.0.0", "nonsense"}
	assert.ErrorContains(t, r.plugin.Validate(of), "none of the versions")
	of.Versions = []string{"0.3.0", "1.2.0", "1.0.0"}
	assert.NoError(t, r.plugin.Validate(of), "a higher version replaces the driver")
	earlier := r.registration()
	require.NoError(t, r.plugin.Register(t.Context(), of))
	r.plugin.Deregister(earlier) // of what was replaced
	_, ok := r.cluster.driver(csidriver.DefaultName)
	assert.True(t, ok)
	r.add("data")
	pod := r.pod("web", "data")
	r.mustSetUp(pod)
	r.mustRemove(pod)

	r.plugin.Deregister(of)
	require.Eventually(t, func() bool {
		_, ok := r.cluster.driver(csidriver.DefaultName)
		return !ok
	}, 10*time.Second, time.Millisecond)

	r.driver.Update(func(s *csidriver.Settings) { s.NodeID = "" })
	assert.ErrorContains(t, r.register(), "has no node ID")
	r.driver.Update(func(s *csidriver.Settings) { s.NodeID = "id" })
	remove := r.driver.Inject(csidriver.Fault{Method: "NodeGetInfo", Code: codes.Internal, Message: "broken"})
	assert.ErrorContains(t, r.register(), "its report of the node: rpc error: code = Internal desc = broken")
	remove()
	r.cluster.installing = func() error { return context.DeadlineExceeded }
	assert.ErrorIs(t, r.register(), context.DeadlineExceeded)
	r.cluster.installing = nil
	_, err := r.setUp(pod)
	assert.ErrorContains(t, err, "not found in the list of registered CSI drivers", "it was refused")
	r.mustRemove(pod)
	r.host.takeSynced()
	_, _ = r.setUp(pod)
	require.NoError(t, r.register())
	assert.Equal(t, []types.UID{pod.UID}, r.host.takeSynced(), "the pod waits for the driver")
	r.mustSetUp(pod)
	r.mustRemove(pod)
	_, _ = r.setUp(pod)
	r.mustRemove(pod)
	r.isClean()
}

// A driver that is registered again while it is being removed stays in the cluster.
func TestRegisteredWhileItIsRemoved(t *testing.T) {
	r := linked(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	r.cluster.uninstalling = func() error {
		close(began)
		<-goOn
		return nil
	}
	r.plugin.Deregister(r.registration())
	<-began
	registered := make(chan error, 1) // has room for the result
	go func() { registered <- r.register() }()
	require.Eventually(t, func() bool { return csidriver.Count(r.driver.Calls(), "NodeGetInfo") == 2 }, 10*time.Second,
		time.Millisecond)
	close(goOn)
	require.NoError(t, <-registered)
	_, ok := r.cluster.driver(csidriver.DefaultName)
	assert.True(t, ok)
}

// A driver that is registered when the agent ends leaves no connection, see the check of goroutines in TestMain.
func TestRegisteredAtTheEnd(t *testing.T) {
	r := linked(t)
	r.end()
	of := r.registration()
	assert.ErrorContains(t, r.plugin.Register(t.Context(), of), "the agent ends")
}

// Pods that wait for a driver and end are not kept.
func TestPodThatWaitedForADriver(t *testing.T) {
	r := linked(t)
	r.add("data")
	r.plugin.Deregister(r.registration())
	pod := r.pod("web", "data")
	_, err := r.setUp(pod)
	require.Error(t, err)
	volumes, _ := r.plugin.VolumesInUse()
	assert.Len(t, volumes, 1, "it is to be attached")
	r.mustRemove(pod)
	r.isClean()
	assert.Contains(t, r.cluster.forgotten, csi.AttachmentName("handle-data", csidriver.DefaultName, nodeName))
	r.host.takeSynced()
	require.NoError(t, r.register())
	assert.Empty(t, r.host.takeSynced())
}

// What is in use is read from disk after a restart.
func TestVolumesInUse(t *testing.T) {
	r := linked(t)
	r.add("data")
	r.add("raw", block)
	pod := r.pod("web", "data", "raw")
	r.use(pod, r.inline("scratch"))
	r.mustSetUp(pod)
	want := []string{"kubernetes.io/csi/" + csidriver.DefaultName + "^handle-data",
		"kubernetes.io/csi/" + csidriver.DefaultName + "^handle-raw"}
	r.restart()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		volumes, known := r.plugin.VolumesInUse()
		assert.True(c, known)
		var names []string
		for _, v := range volumes {
			names = append(names, string(v))
		}
		assert.Equal(c, want, names)
	}, 10*time.Second, time.Millisecond)
	r.mustRemove(pod)
	r.isClean()
	driver, handle, ok := csi.SplitUniqueName(csi.UniqueName("d", "a^b"))
	assert.Equal(t, []any{"d", "a^b", true}, []any{driver, handle, ok})
	_, _, ok = csi.SplitUniqueName("kubernetes.io/nfs/x")
	assert.False(t, ok)
}

// In virtual time nothing is done for an agent without drivers and volumes.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.installing = func() error { panic("nothing is installed") }
		p, err := csi.New(c, t.TempDir(), csi.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1) // has room for the result
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		_, known := p.VolumesInUse()
		assert.True(t, known)
		cancel()
		assert.NoError(t, <-ended)
	})
}
