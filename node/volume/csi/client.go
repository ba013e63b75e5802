package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// driver is the connection to a registered driver.
type driver struct {
	plugins.Plugin
	conn *grpc.ClientConn
	node csipb.NodeClient

	mu  sync.Mutex
	can *abilities // nil: not asked yet
}

// abilities are what a driver can do on the node (NodeGetCapabilities).
type abilities struct {
	stage, expand, stats, singleNodeMultiWriter, mountGroup bool
}

// connect makes a connection, which is opened by the first call.
func (p *Plugin) connect(of plugins.Plugin) (*driver, error) {
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			began := time.Now()
			err := call(ctx, method, in, out, conn, opts...)
			p.node.Measure(volume.DriverCall{Driver: of.Name, Method: method, Code: status.Code(err).String(),
				Took: time.Since(began)})
			return err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{ // soon after a driver that was away for long
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return p.dial(ctx, of.Endpoint)
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to CSI driver %s at %s: %w", of.Name, of.Endpoint, err)
	}
	return &driver{Plugin: of, conn: conn, node: csipb.NewNodeClient(conn)}, nil
}

// capabilities returns what the driver can do. It is asked once for each registration.
func (d *driver) capabilities(ctx context.Context) (abilities, error) {
	d.mu.Lock()
	known := d.can
	d.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	response, err := d.node.NodeGetCapabilities(ctx, &csipb.NodeGetCapabilitiesRequest{})
	if err != nil {
		return abilities{}, fmt.Errorf("capabilities of CSI driver %s: %w", d.Name, err)
	}
	var can abilities
	for _, c := range response.GetCapabilities() {
		switch c.GetRpc().GetType() {
		case csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			can.stage = true
		case csipb.NodeServiceCapability_RPC_EXPAND_VOLUME:
			can.expand = true
		case csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			can.stats = true
		case csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			can.singleNodeMultiWriter = true
		case csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			can.mountGroup = true
		}
	}
	d.mu.Lock()
	d.can = &can
	d.mu.Unlock()
	return can, nil
}

// capability returns how a volume is used.
func capability(can abilities, req volume.PersistentRequest) *csipb.VolumeCapability {
	spec := &req.Volume.Spec
	out := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{
		Mode: accessMode(spec.AccessModes, can.singleNodeMultiWriter)}}
	if req.Block { // has no mount options and no group, as in kubelet
		out.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return out
	}
	mount := &csipb.VolumeCapability_MountVolume{FsType: spec.CSI.FSType, MountFlags: spec.MountOptions}
	if req.SELinuxLabel != "" { // in quotes, as it may have a comma
		mount.MountFlags = append(slices.Clone(spec.MountOptions), fmt.Sprintf("context=%q", req.SELinuxLabel))
	}
	if group := fsGroup(req.Pod); group != nil && can.mountGroup {
		mount.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	out.AccessType = &csipb.VolumeCapability_Mount{Mount: mount}
	return out
}

// accessMode translates the first access mode, as kubelet does (asCSIAccessModeV1).
func accessMode(modes []v1.PersistentVolumeAccessMode,
	singleNodeMultiWriter bool) csipb.VolumeCapability_AccessMode_Mode {
	mode := v1.ReadWriteOnce
	if len(modes) > 0 {
		mode = modes[0]
	}
	switch {
	case mode == v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOnce && singleNodeMultiWriter:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && singleNodeMultiWriter:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == v1.ReadWriteOnce, mode == v1.ReadWriteOncePod:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csipb.VolumeCapability_AccessMode_UNKNOWN
}

func (d *driver) stage(ctx context.Context, can abilities, req volume.PersistentRequest, path string,
	publishContext, secrets map[string]string) error {
	_, err := d.node.NodeStageVolume(ctx, &csipb.NodeStageVolumeRequest{
		VolumeId: req.Volume.Spec.CSI.VolumeHandle, PublishContext: publishContext, StagingTargetPath: path,
		VolumeCapability: capability(can, req), Secrets: secrets, VolumeContext: req.Volume.Spec.CSI.VolumeAttributes,
	})
	return err
}

func (d *driver) publish(ctx context.Context, can abilities, req volume.PersistentRequest, call publication) error {
	_, err := d.node.NodePublishVolume(ctx, &csipb.NodePublishVolumeRequest{
		VolumeId: req.Volume.Spec.CSI.VolumeHandle, PublishContext: call.context, StagingTargetPath: call.staging,
		TargetPath: call.target, VolumeCapability: capability(can, req), Readonly: call.readOnly, Secrets: call.secrets,
		VolumeContext: call.attributes,
	})
	return err
}

func (d *driver) unpublish(ctx context.Context, handle, target string) error {
	_, err := d.node.NodeUnpublishVolume(ctx, &csipb.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	return err
}

// isFinal reports whether the call of a driver has failed and is not under way any more (kubelet: isFinalError). The
// codes of calls that may be under way are those of the CSI specification and of gRPC.
func isFinal(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.GRPCStatus().Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

func (d *driver) unstage(ctx context.Context, handle, path string) error {
	_, err := d.node.NodeUnstageVolume(ctx, &csipb.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: path})
	return err
}
