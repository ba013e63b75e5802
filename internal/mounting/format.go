package mounting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// DefaultType is the type of file system of a device for which none is requested (mount-utils).
const DefaultType = "ext4"

// Exit codes of blkid(8) and fsck(8).
const (
	nothingFound      = 2
	errorsUncorrected = 4
)

// unknownData is what blkid reports as the type of a device with partitions (the text is that of mount-utils).
const unknownData = "unknown data, probably partitions"

// FormatAndMount mounts the file system of a device at target. If there is nothing on the device, it makes a file
// system first; if there is one, it is checked and repaired first, unless the options have ro. Nothing is overwritten.
// The texts of its errors are those of mount-utils (SafeFormatAndMount).
func (r Run) FormatAndMount(ctx context.Context, device, target, fsType string, options []string) error {
	if fsType == "" {
		fsType = DefaultType
	}
	readOnly := slices.Contains(options, "ro")
	found, err := r.typeOf(ctx, device)
	if err != nil {
		return fmt.Errorf("failed to get disk format of disk %s: %w", device, err)
	}
	switch {
	case found == "" && readOnly:
		return fmt.Errorf("cannot mount unformatted disk %s as we are manipulating it in read-only mode", device)
	case found == "":
		err = r.format(ctx, device, target, fsType, options)
	case !readOnly:
		err = r.check(ctx, device)
	}
	if err != nil {
		return err
	}
	err = r.Mount(ctx, device, target, fsType, append(slices.Clone(options), "defaults"))
	if err != nil && found != "" && found != fsType {
		return fmt.Errorf("%w\nThe disk has %s, and %s is requested: set fsType of the volume, or empty the disk with "+
			"wipefs if nothing on it is needed", err, found, fsType)
	}
	return err
}

// typeOf returns what is on a device: the type of a file system or of other data, or nothing.
func (r Run) typeOf(ctx context.Context, device string) (string, error) {
	output, err := r(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	if failed := (ExitCoder)(nil); errors.As(err, &failed) && failed.ExitCode() == nothingFound && len(output) == 0 {
		return "", readable(device) // else blkid says why it finds nothing
	}
	if err != nil {
		return "", fmt.Errorf("%w%s%s", err, output, missing(err, "util-linux"))
	}
	var found string
	for line := range strings.Lines(string(output)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case name == "":
		case !ok:
			return "", fmt.Errorf("blkid returns invalid output: %s", output)
		case name == "PTTYPE":
			return unknownData, nil
		case name == "TYPE":
			found = value
		}
	}
	return found, nil // nothing in an empty partition
}

// probed is how much of a device must be readable to be formatted, in bytes: most file systems begin there.
const probed = 1 << 20

// readable fails if the beginning of a device cannot be read: what is there is not known.
func readable(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.CopyN(io.Discard, f, probed)
	if errors.Is(err, io.EOF) { // it is smaller
		return nil
	}
	return err
}

// format makes a file system. mkfs is not ended: blkid finds nothing on what it leaves half-made, or finds a broken
// file system.
func (r Run) format(ctx context.Context, device, target, fsType string, options []string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	args := []string{device}
	switch fsType {
	case "ext3", "ext4": // all of it is for the volume, also without a terminal to confirm that on
		args = []string{"-F", "-m0", device}
	case "xfs":
		args = []string{"-f", device}
	}
	output, err := r(context.WithoutCancel(ctx), "mkfs."+fsType, args...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("format of disk %q failed: type:(%q) target:(%q) options:(%q) errcode:(%w) output:(%s) %s", device,
		fsType, target, append(slices.Clone(options), "defaults"), err, short(output), missing(err, packageOf(fsType)))
}

// check repairs a file system. As in mount-utils, only errors that fsck could not correct are errors.
func (r Run) check(ctx context.Context, device string) error {
	output, err := r(ctx, "fsck", "-a", device)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed := (ExitCoder)(nil); errors.As(err, &failed) && failed.ExitCode() == errorsUncorrected {
		return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %s", device, short(output))
	}
	return nil
}

// packageOf returns the package of Debian, Fedora and Alpine with the programs for a type of file system.
func packageOf(fsType string) string {
	switch fsType {
	case "ext2", "ext3", "ext4":
		return "e2fsprogs"
	case "xfs":
		return "xfsprogs"
	case "btrfs":
		return "btrfs-progs"
	}
	return "with that name"
}

// missing says which package has a program that is missing.
func missing(err error, pkg string) string {
	if errors.Is(err, exec.ErrNotFound) {
		return "; install the package " + pkg
	}
	return lacking(err)
}
