package csidriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/loop"
	"github.com/kubeletkit/kubeletkit/internal/machine"
)

// canMount reports whether this process may mount file systems.
func canMount() bool { return os.Geteuid() == 0 }

// mountFlags are the flags that a bind mount has for itself.
var mountFlags = [...]struct {
	name string
	flag uintptr
}{{"ro", unix.MS_RDONLY}, {"noexec", unix.MS_NOEXEC}, {"nosuid", unix.MS_NOSUID}, {"nodev", unix.MS_NODEV},
	{"noatime", unix.MS_NOATIME}}

// bind mounts a directory or a file at the target, which is there.
func bind(source, target string, readOnly bool, options string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: target, Err: err}
	}
	var flags uintptr
	for _, f := range mountFlags {
		for option := range strings.SplitSeq(options, ",") {
			if option == f.name {
				flags |= f.flag
			}
		}
	}
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(&os.PathError{Op: "remount", Path: target, Err: err}, unmount(target))
	}
	return nil
}

// mountDevice mounts the file system of a device. If SELinux is on, its files have the label, unless that is empty.
func mountDevice(device, target, fileSystem, label string) error {
	options := ""
	if label != "" && machine.HasSELinux() {
		options = fmt.Sprintf("context=%q", label)
	}
	if err := unix.Mount(device, target, fileSystem, 0, options); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}

// unmount takes down what is mounted at the target, if anything.
func unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err == nil || err == unix.EINVAL || err == unix.ENOENT {
		return nil
	}
	return &os.PathError{Op: "unmount", Path: target, Err: err}
}

// mountedFrom reports whether the file system of a device is mounted at the target.
func mountedFrom(device, target string) bool {
	var dev, dir unix.Stat_t
	return unix.Stat(device, &dev) == nil && unix.Stat(target, &dir) == nil && dev.Rdev == dir.Dev
}

// hasLoopDevices reports whether files can be attached to loop devices.
func hasLoopDevices() bool {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return control.Close() == nil
}

// loopOf returns the loop device that a file is attached to, or "".
func loopOf(image string) (string, error) {
	var file unix.Stat_t
	if err := unix.Stat(image, &file); err != nil {
		return "", &os.PathError{Op: "stat", Path: image, Err: err}
	}
	used, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return "", err
	}
	for _, dir := range used {
		path := "/dev/" + filepath.Base(filepath.Dir(dir))
		device, err := os.Open(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		_ = device.Close()
		if err == nil && info.Inode == file.Ino && info.Device == file.Dev {
			return path, nil
		}
	}
	return "", nil
}

// attachLoop returns the loop device that a file is attached to.
func attachLoop(image string) (string, error) {
	if path, err := loopOf(image); err != nil || path != "" {
		return path, err
	}
	return loop.Attach(image)
}

// detachLoop detaches a file from its loop device, if it has one. The device ends with its last user.
func detachLoop(image string) error {
	path, err := loopOf(image)
	if errors.Is(err, os.ErrNotExist) || err == nil && path == "" {
		return nil
	}
	if err != nil {
		return err
	}
	return loop.Detach(path)
}

// growLoop gives the loop device of a file the size of the file.
func growLoop(image string) (path string, err error) {
	path, err = loopOf(image)
	if err != nil || path == "" {
		return path, err
	}
	return path, loop.Grow(path)
}

// fileSystemUsage returns what statfs reports: bytes and inodes, in all, free, and used.
func fileSystemUsage(path string) (bytes, inodes usage, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return usage{}, usage{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	size := int64(s.Bsize)
	return usage{int64(s.Blocks) * size, int64(s.Bavail) * size, int64(s.Blocks-s.Bfree) * size},
		usage{int64(s.Files), int64(s.Ffree), int64(s.Files - s.Ffree)}, nil
}
