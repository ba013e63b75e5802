package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// Expand implements [volume.PersistentPlugin].
func (p *Plugin) Expand(ctx context.Context, req volume.PersistentRequest) error {
	src := req.Volume.Spec.CSI
	d, err := p.driverFor(req.Pod, src.Driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	can, err := d.capabilities(ctx)
	if err != nil {
		return err
	}
	if !can.expand {
		return fmt.Errorf("NodeExpand is not supported by the CSI driver %s: %w", src.Driver, volume.ErrUnsupported)
	}
	secrets, err := p.secrets(ctx, src.NodeExpandSecretRef, "NodeExpandSecretRef")
	if err != nil {
		return err
	}
	call := &csipb.NodeExpandVolumeRequest{VolumeId: src.VolumeHandle, VolumePath: p.targetPath(req.Place, req.Block),
		CapacityRange:    &csipb.CapacityRange{RequiredBytes: req.Volume.Spec.Capacity.Storage().Value()},
		VolumeCapability: capability(can, req), Secrets: secrets}
	if can.stage {
		call.StagingTargetPath = p.stagePath(req)
	}
	if _, err := d.node.NodeExpandVolume(ctx, call); err != nil {
		return fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", classified(err))
	}
	return nil
}

// classified returns the error of NodeExpandVolume as one that says whether another attempt is useful (kubelet:
// isInfeasibleError, inUseError).
func classified(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return fmt.Errorf("%w: %w", volume.ErrInfeasible, err)
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", volume.ErrInUse, err)
	}
	if isFinal(err) {
		return fmt.Errorf("%w: %w", volume.ErrFinal, err)
	}
	return err
}
