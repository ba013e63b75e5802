package csidriver

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ephemeral is the key of the context of volumes that live as long as their publication.
const ephemeral = "csi.storage.k8s.io/ephemeral"

// defaultCapacity is the size in bytes of a volume of which the CO does not give one.
const defaultCapacity = 64 << 20

// node is the service Node.
type node struct {
	csi.UnimplementedNodeServer
	d *Driver
}

func (n node) NodeStageVolume(ctx context.Context,
	r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	const method = "NodeStageVolume"
	if err := n.d.need(method, r.VolumeId, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId, "staging target path", r.StagingTargetPath); err != nil {
		return nil, err
	}
	a, err := n.d.access(method, r.VolumeId, r.VolumeCapability)
	if err != nil {
		return nil, err
	}
	v, unlock, err := n.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.d.checkUse(method, v, r.PublishContext, r.VolumeContext); err != nil {
		return nil, err
	}
	if v.Staged != nil && v.Staged.Path != r.StagingTargetPath {
		return nil, n.d.refuse(method, v.ID, "it is staged at %s, not at %s", v.Staged.Path, r.StagingTargetPath)
	}
	if v.Staged != nil && v.Staged.Access != a {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is staged with %+v", v.ID, v.Staged.Access)
	}
	if info, err := os.Stat(r.StagingTargetPath); err != nil || !info.IsDir() {
		return nil, n.d.refuse(method, v.ID, "the staging path %s is no directory", r.StagingTargetPath)
	}
	source, err := n.d.prepare(ctx, &v, a)
	if err == nil && !a.Block {
		err = errors.Join(n.d.give(source, a.Group), n.d.place(source, r.StagingTargetPath, a, false))
	}
	v.Staged = &stage{Path: r.StagingTargetPath, Access: a, Answered: v.Staged != nil && v.Staged.Answered}
	if err != nil && !v.Staged.Answered && len(v.Targets) == 0 {
		if undone := n.d.unstage(v); undone == nil {
			v.Staged = nil
		}
	}
	if err = errors.Join(err, n.d.volumes.put(v)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// unstage undoes the work of NodeStageVolume.
func (d *Driver) unstage(v volume) error {
	if !v.Staged.Access.Block {
		if err := d.displace(v.Staged.Path, true); err != nil {
			return err
		}
	}
	return d.discard(v.ID)
}

func (n node) NodeUnstageVolume(_ context.Context,
	r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	const method = "NodeUnstageVolume"
	if err := n.d.need(method, r.VolumeId, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME); err != nil {
		return nil, err
	}
	if err := required("volume ID", r.VolumeId, "staging target path", r.StagingTargetPath); err != nil {
		return nil, err
	}
	v, unlock, err := n.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if v.Staged == nil {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	if v.Staged.Path != r.StagingTargetPath {
		return nil, n.d.refuse(method, v.ID, "it is staged at %s, not at %s", v.Staged.Path, r.StagingTargetPath)
	}
	if len(v.Targets) > 0 {
		return nil, n.d.refuse(method, v.ID, "it is published at %v", paths(v))
	}
	err = n.d.unstage(v)
	if err == nil {
		v.Staged = nil
		err = n.d.volumes.put(v)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n node) NodePublishVolume(ctx context.Context,
	r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	const method = "NodePublishVolume"
	if err := required("volume ID", r.VolumeId, "target path", r.TargetPath); err != nil {
		return nil, err
	}
	a, err := n.d.access(method, r.VolumeId, r.VolumeCapability)
	if err != nil {
		return nil, err
	}
	if r.VolumeContext[ephemeral] == "true" {
		if err := n.d.addEphemeral(r.VolumeId, r.VolumeContext); err != nil {
			return nil, err
		}
	}
	v, unlock, err := n.d.lock(r.VolumeId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.d.checkUse(method, v, r.PublishContext, r.VolumeContext); err != nil {
		return nil, err
	}
	if err := n.d.checkStaged(method, v, a, r.StagingTargetPath); err != nil {
		return nil, err
	}
	p := publication{Staging: r.StagingTargetPath, Access: a, ReadOnly: r.Readonly || readOnly(a.Mode)}
	if err := n.d.checkOthers(method, v, r.TargetPath, p); err != nil {
		return nil, err
	}
	if info, err := os.Stat(filepath.Dir(r.TargetPath)); err != nil || !info.IsDir() {
		return nil, n.d.refuse(method, v.ID, "the parent of the target path %s is no directory", r.TargetPath)
	}
	source, err := n.d.prepare(ctx, &v, a)
	if err == nil && !a.Block && v.Staged == nil {
		err = n.d.give(source, a.Group)
	}
	if err == nil && !a.Block && v.Staged != nil && n.d.Mounts() {
		source = v.Staged.Path // with the flags of its mount
	}
	if err == nil {
		err = n.d.place(source, r.TargetPath, a, p.ReadOnly)
	}
	if v.Targets == nil {
		v.Targets = map[string]publication{}
	}
	if err == nil || n.d.displace(r.TargetPath, false) != nil {
		v.Targets[r.TargetPath] = p
	}
	if err = errors.Join(err, n.d.volumes.put(v)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// addEphemeral adds a volume that lives as long as its publication.
func (d *Driver) addEphemeral(id string, volumeContext map[string]string) error {
	if _, ok := d.volumes.get(id); ok {
		return nil
	}
	v := volume{ID: id, Capacity: defaultCapacity, Context: volumeContext, Ephemeral: true}
	if err := d.volumes.put(v); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (n node) NodeUnpublishVolume(_ context.Context,
	r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume ID", r.VolumeId, "target path", r.TargetPath); err != nil {
		return nil, err
	}
	v, unlock, err := n.d.lock(r.VolumeId)
	if status.Code(err) == codes.NotFound {
		// The CO may call again for a volume that has ended with its publication.
		if _, missing := os.Lstat(r.TargetPath); errors.Is(missing, os.ErrNotExist) {
			return &csi.NodeUnpublishVolumeResponse{}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, ok := v.Targets[r.TargetPath]; !ok {
		return &csi.NodeUnpublishVolumeResponse{}, nil
	}
	err = n.d.displace(r.TargetPath, false)
	if err == nil && v.Staged == nil && len(v.Targets) == 1 {
		err = n.d.discard(v.ID)
	}
	if err == nil {
		delete(v.Targets, r.TargetPath)
		err = n.d.volumes.put(v)
	}
	if err == nil && v.Ephemeral && len(v.Targets) == 0 {
		err = errors.Join(os.RemoveAll(n.d.dir(v.ID)), n.d.volumes.remove(v.ID))
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
