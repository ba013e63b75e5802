package csi_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// timeless is a driver without a socket, whose volumes are nothing.
type timeless struct {
	csipb.UnimplementedNodeServer
	max   atomic.Int64
	asked atomic.Int64
}

func (d *timeless) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	d.asked.Add(1)
	return &csipb.NodeGetInfoResponse{NodeId: "id", MaxVolumesPerNode: d.max.Load()}, nil
}

func (*timeless) NodeGetCapabilities(context.Context,
	*csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	return &csipb.NodeGetCapabilitiesResponse{}, nil
}

func (*timeless) NodePublishVolume(context.Context,
	*csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	return &csipb.NodePublishVolumeResponse{}, nil
}

func (*timeless) NodeUnpublishVolume(context.Context,
	*csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, nil
}

// inVirtualTime runs a test with a registered driver.
func inVirtualTime(t *testing.T, test func(t *testing.T, p *csi.Plugin, d *timeless, c *cluster, h *host)) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, h, d := newCluster(), &host{}, &timeless{}
		c.add(&storagev1.CSIDriver{}, "d")
		d.max.Store(1)
		p, err := csi.New(c, root, csi.Options{})
		require.NoError(t, err)
		require.NoError(t, p.Join(h))
		listener := bufconn.Listen(1 << 16)
		p.Dial(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })
		server := grpc.NewServer()
		csipb.RegisterNodeServer(server, d)
		served := make(chan error, 1) // has room for the result
		go func() { served <- server.Serve(listener) }()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1) // has room for the result
		go func() { ended <- p.Run(ctx) }()
		require.NoError(t, p.Register(t.Context(), plugins.Plugin{Type: plugins.TypeCSI, Name: "d",
			Versions: []string{"1.0.0"}}))
		test(t, p, d, c, h)
		cancel()
		assert.NoError(t, <-ended)
		server.Stop()
		assert.NoError(t, <-served)
	})
}

// How many volumes the node can have is asked again as often as the object of the driver says, and if it has too many.
func TestAllocatable(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *csi.Plugin, d *timeless, c *cluster, _ *host) {
		max := func() int64 {
			installed, _ := c.driver("d")
			return installed.MaxVolumes
		}
		d.max.Store(2)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, d.asked.Load(), "the object does not request it")
		c.change("d", func(spec *storagev1.CSIDriverSpec) { spec.NodeAllocatableUpdatePeriodSeconds = ptr.To(int64(60)) })
		time.Sleep(11 * time.Second)
		assert.EqualValues(t, 1, max())
		time.Sleep(70 * time.Second)
		assert.EqualValues(t, 2, max())
		asked := d.asked.Load()
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 10, d.asked.Load()-asked, 2)

		d.max.Store(3)
		pv := &v1.PersistentVolume{}
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
		c.attach(csinode.AttachmentName("h", "d", nodeName), storagev1.VolumeAttachmentStatus{
			AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: ptr.To(int32(codes.ResourceExhausted))}})
		c.mu.Lock()
		c.attached = errors.New("not attached") // the node object never shows a volume that cannot be attached
		c.mu.Unlock()
		err := p.Attach(t.Context(), volume.PersistentRequest{Pod: &v1.Pod{}, Volume: pv})
		assert.ErrorContains(t, err, "full")
		var refusal *runtime.TerminalError
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "VolumeAttachmentLimitExceeded", refusal.Reason)
		synctest.Wait()
		assert.EqualValues(t, 3, max(), "at once")
	})
}

// A volume is not in use any more, and is detached, when the object of its driver stops requiring the attachment.
func TestAttachmentNotRequiredAnyMore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *csi.Plugin, _ *timeless, c *cluster, h *host) {
		pv := &v1.PersistentVolume{}
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
		c.attach(csinode.AttachmentName("h", "d", nodeName), storagev1.VolumeAttachmentStatus{Attached: true})
		require.NoError(t, p.Attach(t.Context(), volume.PersistentRequest{Pod: &v1.Pod{}, Volume: pv}))
		time.Sleep(time.Minute)
		volumes, _ := p.VolumesInUse()
		assert.Len(t, volumes, 1)
		c.change("d", func(spec *storagev1.CSIDriverSpec) { spec.AttachRequired = ptr.To(false) })
		reported := h.reported()
		time.Sleep(11 * time.Second)
		volumes, _ = p.VolumesInUse()
		assert.Empty(t, volumes)
		assert.Equal(t, reported+1, h.reported())
		time.Sleep(time.Minute)
		assert.Equal(t, reported+1, h.reported())
	})
}

// A pod is synced every minute as long as it has a volume that is published again.
func TestRepublicationInTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *csi.Plugin, _ *timeless, c *cluster, h *host) {
		c.change("d", func(spec *storagev1.CSIDriverSpec) {
			spec.RequiresRepublish, spec.AttachRequired = ptr.To(true), ptr.To(false)
			spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
		})
		pv := &v1.PersistentVolume{}
		pv.Name, pv.Spec.CSI = "data", &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
		pod := &v1.Pod{}
		pod.UID = "uid-web"
		req := volume.PersistentRequest{Pod: pod, Volume: pv, Place: volume.PlaceOf(t.TempDir()+"/uid-web", csi.Name, "data")}
		published, err := p.Publish(t.Context(), req)
		require.NoError(t, err)
		assert.True(t, published.Republish)
		time.Sleep(10*time.Minute + time.Second)
		assert.Len(t, h.takeSynced(), 10)
		down := volume.UnpublishRequest{Pod: runtime.PodRef{UID: types.UID("uid-web")}, Key: p.Key(pv), Place: req.Place}
		require.NoError(t, p.Unpublish(t.Context(), down))
		require.NoError(t, p.Unstage(t.Context(), down))
		time.Sleep(time.Hour)
		assert.Empty(t, h.takeSynced())
	})
}
