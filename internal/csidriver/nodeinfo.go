package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (n node) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range n.d.Settings().NodeCapabilities {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return response, nil
}

func (n node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	settings := n.d.Settings()
	response := &csi.NodeGetInfoResponse{NodeId: settings.NodeID, MaxVolumesPerNode: settings.MaxVolumes}
	if len(settings.Topology) > 0 {
		response.AccessibleTopology = &csi.Topology{Segments: settings.Topology}
	}
	return response, nil
}

func (n node) NodeGetVolumeStats(_ context.Context,
	r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := n.d.need("NodeGetVolumeStats", r.VolumeId,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId, "volume path", r.VolumePath); err != nil {
		return nil, err
	}
	v, a, err := n.d.at(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if a.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: v.Capacity}}}, nil
	}
	bytes, inodes, err := measure(n.d.base(v.ID), v.Capacity)
	if n.d.opts.FileSystem != "" {
		bytes, inodes, err = fileSystemUsage(r.VolumePath)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: bytes.total, Available: bytes.available, Used: bytes.used},
		{Unit: csi.VolumeUsage_INODES, Total: inodes.total, Available: inodes.available, Used: inodes.used},
	}}, nil
}

// at returns a volume that is published or staged at a path.
func (d *Driver) at(id, path string) (volume, access, error) {
	v, ok := d.volumes.get(id)
	if !ok {
		return v, access{}, notFound(id)
	}
	if p, ok := v.Targets[path]; ok {
		return v, p.Access, nil
	}
	if v.Staged != nil && v.Staged.Path == path {
		return v, v.Staged.Access, nil
	}
	return v, access{}, status.Errorf(codes.NotFound, "volume %s is not at %s", id, path)
}

func (n node) NodeExpandVolume(ctx context.Context,
	r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	const method = "NodeExpandVolume"
	if err := n.d.need(method, r.VolumeId, csi.NodeServiceCapability_RPC_EXPAND_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId, "volume path", r.VolumePath); err != nil {
		return nil, err
	}
	v, unlock, err := n.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, a, err := n.d.at(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	size, err := n.d.size(r.CapacityRange, v.Capacity)
	if err != nil {
		return nil, err
	}
	if size > v.Capacity {
		if n.d.Settings().controller(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME) {
			return nil, n.d.refuse(method, v.ID, "the controller has expanded it to %d bytes only, not to %d", v.Capacity,
				size)
		}
		v.Capacity = size
	}
	err = n.d.resize(ctx, v, a)
	if err == nil {
		err = n.d.volumes.put(v)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Capacity}, nil
}

// size returns the capacity in bytes for a range, which is at least the one that there is.
func (d *Driver) size(r *csi.CapacityRange, now int64) (int64, error) {
	wanted, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if wanted < 0 || limit < 0 {
		return 0, status.Error(codes.InvalidArgument, "the capacity range is negative")
	}
	size := max(wanted, now)
	if size > d.opts.MaxVolumeBytes || limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are more than the limit %d, or than the volumes can have, %d",
			size, limit, d.opts.MaxVolumeBytes)
	}
	return size, nil
}

func (n node) NodeGetVolumeHealth(_ context.Context,
	r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := n.d.need("NodeGetVolumeHealth", r.VolumeId,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	if _, ok := n.d.volumes.get(r.VolumeId); !ok {
		return nil, notFound(r.VolumeId)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: r.VolumeId,
		HealthStatuses: n.d.Settings().Health[r.VolumeId]}}, nil
}

func (n node) NodeGetStorageHealth(context.Context,
	*csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	if err := n.d.need("NodeGetStorageHealth", "", csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH); err != nil {
		return nil, err
	}
	return &csi.NodeGetStorageHealthResponse{BackendHealth: n.d.Settings().BackendHealth}, nil
}
