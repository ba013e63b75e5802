package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// usage is a size, in bytes or in inodes.
type usage struct{ total, available, used int64 }

func (d *Driver) dir(id string) string { return filepath.Join(d.opts.Dir, "volumes", escaped(id)) }

// data is the directory of a volume that is no device.
func (d *Driver) data(id string) string { return filepath.Join(d.dir(id), "data") }

// image is the file of a volume that is a device.
func (d *Driver) image(id string) string { return filepath.Join(d.dir(id), "image") }

// base is what is bound at the paths of a volume with access type mount.
func (d *Driver) base(id string) string {
	if d.opts.FileSystem != "" {
		return filepath.Join(d.dir(id), "mount")
	}
	return d.data(id)
}

// escaped returns a name of a directory for an ID.
func escaped(id string) string {
	if id == filepath.Base(id) && len(id) < 200 && id != "." && id != ".." {
		return id
	}
	return fmt.Sprintf("%x", id)[:min(200, 2*len(id))]
}

// Data returns the directory that has the files of a volume, if its access type is mount. It is there from the first
// NodeStageVolume or NodePublishVolume on.
func (d *Driver) Data(id string) string { return d.base(id) }

// Image returns the file that has the bytes of a volume, if its access type is block.
func (d *Driver) Image(id string) string { return d.image(id) }

// prepare makes what is bound: the directory, the device, or the file in place of a device.
func (d *Driver) prepare(ctx context.Context, v *volume, a access) (source string, err error) {
	if !a.Block && d.opts.FileSystem == "" {
		data := d.data(v.ID)
		if _, err := os.Stat(data); err == nil {
			return data, nil
		}
		if err := os.MkdirAll(data, 0o777); err != nil {
			return "", err
		}
		return data, os.Chmod(data, 0o777) // whatever the umask is
	}
	image := d.image(v.ID)
	if err := d.grow(v.ID, v.Capacity); err != nil {
		return "", err
	}
	if !d.devices() {
		return image, nil
	}
	device, err := attachLoop(image)
	if err != nil || a.Block {
		return device, err
	}
	base := d.base(v.ID)
	if mountedFrom(device, base) {
		return base, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	if !v.Formatted {
		if err := run(ctx, "mkfs."+d.opts.FileSystem, "-q", "-F", device); err != nil {
			return "", err
		}
		v.Formatted = true
		if err := d.volumes.put(*v); err != nil {
			return "", err
		}
	}
	return base, mountDevice(device, base, d.opts.FileSystem, a.Context)
}

// devices reports whether images are attached to loop devices. Those of file systems must be.
func (d *Driver) devices() bool {
	return !d.opts.Links && (d.opts.FileSystem != "" || hasLoopDevices())
}

// onDevice reports whether an image is attached.
func onDevice(image string) bool {
	device, err := loopOf(image)
	return err == nil && device != ""
}

// discard ends what prepare has made. The content stays.
func (d *Driver) discard(id string) error {
	if d.opts.Links {
		return nil
	}
	if d.opts.FileSystem != "" {
		if err := unmount(d.base(id)); err != nil {
			return err
		}
	}
	return detachLoop(d.image(id))
}

// grow makes the image at least as large as the volume.
func (d *Driver) grow(id string, size int64) error {
	if err := os.MkdirAll(d.dir(id), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(d.image(id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() >= size {
		return err
	}
	return f.Truncate(size)
}

// resize lets the node see the new size of a volume.
func (d *Driver) resize(ctx context.Context, v volume, a access) error {
	if !a.Block && d.opts.FileSystem == "" {
		return nil
	}
	if err := d.grow(v.ID, v.Capacity); err != nil || d.opts.Links {
		return err
	}
	device, err := growLoop(d.image(v.ID))
	if err != nil || device == "" || a.Block {
		return err
	}
	return run(ctx, "resize2fs", device)
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

// place makes the source available at the target. It does nothing if it is there already.
func (d *Driver) place(source, target string, a access, readOnly bool) error {
	if d.placed(source, target) {
		return nil
	}
	if d.opts.Links {
		if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if a.Block && os.Link(source, target) == nil {
			return nil
		}
		return os.Symlink(source, target)
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.Mkdir(target, 0o755)
	} else {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = f.Close()
		}
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return bind(source, target, readOnly, a.Flags)
}

// placed reports whether the source is available at the target.
func (d *Driver) placed(source, target string) bool {
	from, err := os.Stat(source)
	if err != nil {
		return false
	}
	to, err := os.Stat(target)
	return err == nil && os.SameFile(from, to)
}

// displace ends what place has done, and removes the target. A directory that is to be kept is empty then.
func (d *Driver) displace(target string, keep bool) error {
	if d.opts.Links {
		if info, err := os.Lstat(target); keep && err == nil && info.IsDir() {
			return nil // it was not staged
		}
	} else if err := unmount(target); err != nil {
		return err
	} else if keep {
		return nil
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if keep {
		return os.Mkdir(target, 0o755)
	}
	return nil
}

// give gives the files of a volume to a group. A process that may not leaves them.
func (d *Driver) give(dir, group string) error {
	if group == "" {
		return nil
	}
	gid, err := strconv.Atoi(group)
	if err != nil {
		return fmt.Errorf("the group %q is no number", group)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if err := os.Lchown(path, -1, gid); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode() | 0o060
		if entry.IsDir() {
			mode |= 0o070 | fs.ModeSetgid
		}
		return os.Chmod(path, mode)
	})
	if d.opts.Links && errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// measure returns the use of a volume that is a directory.
func measure(dir string, capacity int64) (bytes, inodes usage, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inodes.used++
		if info, err := entry.Info(); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			bytes.used += info.Size()
		}
		return nil
	})
	const maxInodes = 1 << 20
	bytes.total, bytes.available = capacity, max(0, capacity-bytes.used)
	inodes.total, inodes.available = maxInodes, max(0, maxInodes-inodes.used)
	return bytes, inodes, err
}

// LoseMounts undoes what was published and staged as the end of the node does: without a call, and with the state as it
// was. No call may be under way.
func (d *Driver) LoseMounts() error {
	var err error
	for _, v := range d.volumes.list() {
		for _, target := range slices.Sorted(maps.Keys(v.Targets)) {
			err = errors.Join(err, d.displace(target, false))
		}
		if v.Staged != nil && !v.Staged.Access.Block {
			err = errors.Join(err, d.displace(v.Staged.Path, true))
		}
		err = errors.Join(err, d.discard(v.ID))
	}
	return err
}
