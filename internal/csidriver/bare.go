package csidriver

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Bare makes the calls for a volume of a driver and nothing else, for benchmarks.
type Bare struct {
	csi.NodeClient
	// Dir is where the volumes are staged and published.
	Dir string
}

// Publish stages and publishes a volume.
func (b Bare) Publish(ctx context.Context, volume string) error {
	stage, target := b.paths(volume)
	if err := os.Mkdir(stage, 0o750); err != nil {
		return err
	}
	access := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{
		Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
	if _, err := b.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: volume, StagingTargetPath: stage,
		VolumeCapability: access}); err != nil {
		return err
	}
	_, err := b.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: volume, StagingTargetPath: stage,
		TargetPath: target, VolumeCapability: access})
	return err
}

// Unpublish undoes Publish.
func (b Bare) Unpublish(ctx context.Context, volume string) error {
	stage, target := b.paths(volume)
	if _, err := b.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volume,
		TargetPath: target}); err != nil {
		return err
	}
	if _, err := b.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volume,
		StagingTargetPath: stage}); err != nil {
		return err
	}
	return os.Remove(stage)
}

func (b Bare) paths(volume string) (stage, target string) {
	stage = filepath.Join(b.Dir, volume)
	return stage, stage + "-target"
}
