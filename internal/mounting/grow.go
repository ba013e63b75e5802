package mounting

import (
	"context"
	"fmt"
)

// Grow makes the file system of a device, which is mounted at target, as large as the device. It does nothing if it is.
func (r Run) Grow(ctx context.Context, device, target string) error {
	found, err := r.typeOf(ctx, device)
	if err != nil {
		return fmt.Errorf("failed to get disk format of disk %s: %w", device, err)
	}
	var args []string
	switch found {
	case "ext2", "ext3", "ext4":
		args = []string{"resize2fs", device}
	case "xfs":
		args = []string{"xfs_growfs", "-d", target}
	case "btrfs":
		args = []string{"btrfs", "filesystem", "resize", "max", target}
	default:
		return fmt.Errorf("resize of format %s is not supported for device %s mounted at %s", found, device, target)
	}
	if output, err := r(ctx, args[0], args[1:]...); err != nil {
		return fmt.Errorf("resize of device %s failed: %w. %s output: %s%s", device, err, args[0], short(output),
			missing(err, packageOf(found)))
	}
	return nil
}
