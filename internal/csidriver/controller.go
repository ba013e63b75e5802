package csidriver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller is the service Controller.
type controller struct {
	csi.UnimplementedControllerServer
	d *Driver
}

// AddVolume adds a volume that no CO has created, or changes its capacity in bytes. It can be called before
// [Driver.Run]. A volume that the driver has from before keeps its state.
func (d *Driver) AddVolume(id string, capacity int64) error {
	v, _ := d.volumes.get(id)
	v.ID, v.Capacity = id, capacity
	return d.volumes.put(v)
}

// AttachVolume attaches a volume to a node as ControllerPublishVolume does, and returns the publish context. It is for
// tests without an attacher.
func (d *Driver) AttachVolume(id, node string, c *csi.VolumeCapability) (map[string]string, error) {
	v, unlock, err := d.lock(id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if v.Attached == nil {
		v.Attached = map[string]attachment{}
	}
	v.Attached[node] = attachment{Access: accessOf(c)}
	return map[string]string{attachedKey: node}, d.volumes.put(v)
}

// need returns an error unless the service has the capability.
func (c controller) need(method, id string, capability csi.ControllerServiceCapability_RPC_Type) error {
	if c.d.Settings().controller(capability) {
		return nil
	}
	return status.Error(codes.Unimplemented, c.d.violation(method, id, "the controller has no capability %v", capability))
}

func (c controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range c.d.Settings().ControllerCapabilities {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return response, nil
}

func (c controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := c.need("CreateVolume", r.Name, csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME); err != nil {
		return nil, err
	}
	if err := required("name", r.Name); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the volume capabilities are missing")
	}
	if r.VolumeContentSource != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes have no source")
	}
	sum := sha256.Sum256([]byte(r.Name))
	id := "volume-" + hex.EncodeToString(sum[:8])
	size, err := c.d.size(r.CapacityRange, 0)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		size = defaultCapacity
		if limit := r.CapacityRange.GetLimitBytes(); limit > 0 {
			size = min(size, limit)
		}
	}
	v, unlock, err := c.d.lock(id)
	if err == nil {
		defer unlock()
		limit := r.CapacityRange.GetLimitBytes()
		if v.Capacity < r.CapacityRange.GetRequiredBytes() || limit > 0 && v.Capacity > limit ||
			!maps.Equal(v.Context, r.Parameters) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes and %v", r.Name, v.Capacity, v.Context)
		}
		return &csi.CreateVolumeResponse{Volume: c.volume(v)}, nil
	} else if status.Code(err) != codes.NotFound {
		return nil, err
	}
	v = volume{ID: id, Name: r.Name, Capacity: size, Context: r.Parameters}
	if err := c.d.volumes.put(v); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: c.volume(v)}, nil
}

func (c controller) volume(v volume) *csi.Volume {
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Capacity, VolumeContext: v.Context}
	if topology := c.d.Settings().Topology; len(topology) > 0 {
		out.AccessibleTopology = []*csi.Topology{{Segments: topology}}
	}
	return out
}

func (c controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	const method = "DeleteVolume"
	if err := c.need(method, r.VolumeId, csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	v, unlock, err := c.d.lock(r.VolumeId)
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	defer unlock()
	if v.Staged != nil || len(v.Targets) > 0 || len(v.Attached) > 0 {
		return nil, c.d.refuse(method, v.ID, "it is in use")
	}
	if err := errors.Join(os.RemoveAll(c.d.dir(v.ID)), c.d.volumes.remove(v.ID)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c controller) ControllerPublishVolume(_ context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	const method = "ControllerPublishVolume"
	if err := c.need(method, r.VolumeId, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId, "node ID", r.NodeId); err != nil {
		return nil, err
	}
	if r.VolumeCapability == nil {
		return nil, status.Error(codes.InvalidArgument, "the volume capability is missing")
	}
	v, unlock, err := c.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	settings := c.d.Settings()
	if r.NodeId != settings.NodeID && !slices.Contains(c.d.opts.Nodes, r.NodeId) {
		return nil, status.Errorf(codes.NotFound, "there is no node %s", r.NodeId)
	}
	a := attachment{Access: accessOf(r.VolumeCapability), ReadOnly: r.Readonly}
	before, attached := v.Attached[r.NodeId]
	if attached && before != a {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached to node %s with %+v", v.ID, r.NodeId, before)
	}
	if !attached && len(v.Attached) > 0 && singleNode(a.Access.Mode) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", v.ID,
			slices.Sorted(maps.Keys(v.Attached)))
	}
	if !attached && settings.MaxVolumes > 0 && c.attached(r.NodeId) >= settings.MaxVolumes {
		return nil, status.Errorf(codes.ResourceExhausted, "node %s has %d volumes", r.NodeId, settings.MaxVolumes)
	}
	if v.Attached == nil {
		v.Attached = map[string]attachment{}
	}
	v.Attached[r.NodeId] = a
	if err := c.d.volumes.put(v); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{attachedKey: r.NodeId}}, nil
}

// attached returns how many volumes are attached to a node.
func (c controller) attached(node string) (n int64) {
	for _, v := range c.d.volumes.list() {
		if _, ok := v.Attached[node]; ok {
			n++
		}
	}
	return n
}

func singleNode(mode csi.VolumeCapability_AccessMode_Mode) bool {
	switch mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return false
	}
	return true
}

func (c controller) ControllerUnpublishVolume(_ context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	const method = "ControllerUnpublishVolume"
	if err := c.need(method, r.VolumeId, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	v, unlock, err := c.d.lock(r.VolumeId)
	if status.Code(err) == codes.NotFound {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // the CO may have deleted it
	} else if err != nil {
		return nil, err
	}
	defer unlock()
	if self := c.d.Settings().NodeID; (r.NodeId == "" || r.NodeId == self) && (v.Staged != nil || len(v.Targets) > 0) {
		return nil, c.d.refuse(method, v.ID, "it is in use on node %s", self)
	}
	if r.NodeId == "" {
		v.Attached = nil
	}
	delete(v.Attached, r.NodeId)
	if err := c.d.volumes.put(v); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (c controller) ControllerExpandVolume(_ context.Context,
	r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := c.need("ControllerExpandVolume", r.VolumeId,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	if r.CapacityRange == nil {
		return nil, status.Error(codes.InvalidArgument, "the capacity range is missing")
	}
	v, unlock, err := c.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if v.Capacity, err = c.d.size(r.CapacityRange, v.Capacity); err != nil {
		return nil, err
	}
	if err := c.d.volumes.put(v); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Capacity,
		NodeExpansionRequired: c.d.Settings().node(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)}, nil
}

func (c controller) ValidateVolumeCapabilities(_ context.Context,
	r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the volume capabilities are missing")
	}
	if _, ok := c.d.volumes.get(r.VolumeId); !ok {
		return nil, notFound(r.VolumeId)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.VolumeContext, VolumeCapabilities: r.VolumeCapabilities, Parameters: r.Parameters}}, nil
}

func (c controller) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if err := c.need("GetCapacity", "", csi.ControllerServiceCapability_RPC_GET_CAPACITY); err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{AvailableCapacity: c.d.opts.MaxVolumeBytes}, nil
}

// ListVolumes lists the volumes in the order of their IDs. The token of a page is the number of volumes before it.
func (c controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if err := c.need("ListVolumes", "", csi.ControllerServiceCapability_RPC_LIST_VOLUMES); err != nil {
		return nil, err
	}
	all, first := c.d.volumes.list(), 0
	if r.StartingToken != "" {
		n, err := strconv.Atoi(r.StartingToken)
		if err != nil || n < 0 || n > len(all) {
			return nil, status.Errorf(codes.Aborted, "the token %q is not one of ours", r.StartingToken)
		}
		first = n
	}
	if r.MaxEntries < 0 {
		return nil, status.Error(codes.InvalidArgument, "the number of entries is negative")
	}
	response := &csi.ListVolumesResponse{}
	for i, v := range all[first:] {
		if r.MaxEntries > 0 && i == int(r.MaxEntries) {
			response.NextToken = strconv.Itoa(first + i)
			break
		}
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: c.volume(v)})
	}
	return response, nil
}

func (c controller) ControllerGetVolume(_ context.Context,
	r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := c.need("ControllerGetVolume", r.VolumeId, csi.ControllerServiceCapability_RPC_GET_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId); err != nil {
		return nil, err
	}
	v, ok := c.d.volumes.get(r.VolumeId)
	if !ok {
		return nil, notFound(r.VolumeId)
	}
	return &csi.ControllerGetVolumeResponse{Volume: c.volume(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
		PublishedNodeIds: slices.Sorted(maps.Keys(v.Attached))}}, nil
}
