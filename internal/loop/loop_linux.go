package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// major is the major number of loop devices (Documentation/admin-guide/devices.txt of Linux).
const major = 7

// control is where the kernel names a free loop device.
const control = "/dev/loop-control"

// Of returns the loop devices that the file or device at the path is attached to. Another path of it does not count.
func Of(path string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, file := range files {
		if name := filepath.Base(filepath.Dir(filepath.Dir(file))); isOf(name, path) {
			devices = append(devices, "/dev/"+name)
		}
	}
	return devices, nil
}

// isOf reports whether the file or device at the path is attached to the loop device.
func isOf(name, path string) bool {
	backing, err := os.ReadFile("/sys/block/" + name + "/loop/backing_file")
	return err == nil && strings.TrimSpace(string(backing)) == path
}

// Hold holds the block device open until [Release], also if this process ends: it mounts the device at the path, a file
// that it makes, and attaches a loop device to that. Otherwise the device could go, and another one get its number,
// which is all that containers have of it. kubelet does the same. It does nothing for what is no block device, and if
// the kernel has no loop devices. It is idempotent.
func Hold(ctx context.Context, device, path string) error {
	var source, held unix.Stat_t
	if err := unix.Stat(device, &source); err != nil {
		return &os.PathError{Op: "stat", Path: device, Err: err}
	}
	if source.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil
	}
	if _, err := os.Stat(control); err != nil {
		return gone(err)
	}
	// After a reboot there is only the file.
	if err := unix.Stat(path, &held); err != nil || held.Rdev != source.Rdev {
		if err := errors.Join(Release(ctx, path), os.MkdirAll(filepath.Dir(path), 0o750)); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE, 0o750)
		if err != nil {
			return err
		}
		_ = file.Close()
		if err := unix.Mount(device, path, "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "bind", Path: path, Err: err}
		}
	}
	if devices, err := Of(path); err != nil || len(devices) > 0 {
		return err
	}
	_, err := Attach(path)
	return err
}

// Release undoes [Hold], and removes the path. Others open any loop device for a moment, as udev does, and the kernel
// detaches it when the last of them has closed it: Release awaits that for five seconds, or returns EBUSY.
func Release(ctx context.Context, path string) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Second, true,
		func(context.Context) (bool, error) {
			err = release(path)
			return !errors.Is(err, unix.EBUSY), nil
		})
	return err
}

func release(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return gone(err) // the usual case, without a look at all loop devices
	}
	devices, err := Of(path)
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := detachFrom(device, path); err != nil {
			return err
		}
	}
	for {
		err := os.Remove(path)
		if !errors.Is(err, unix.EBUSY) {
			return gone(err)
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}

// detachFrom detaches the loop device if the path is still what it is attached to. Another process can have taken the
// device meanwhile, but not while it is open here.
func detachFrom(name, path string) error {
	device, err := os.Open(name)
	if err != nil {
		return err
	}
	defer device.Close()
	if !isOf(filepath.Base(name), path) {
		return nil
	}
	return Detach(name)
}

// gone is nil if err says that there is nothing.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Attach attaches the file or device at the path to a free loop device, which it returns. What cannot be written is
// attached to one that cannot be written either.
func Attach(path string) (device string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		file, err = os.Open(path)
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	free, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("attaching %s to a loop device: %w; load the kernel module loop", path, err)
	}
	defer free.Close()
	for range 100 { // others may take the device that is free
		n, err := unix.IoctlRetInt(int(free.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("LOOP_CTL_GET_FREE: %w", err)
		}
		name := fmt.Sprintf("/dev/loop%d", n)
		// In a container, whose /dev has no udev, it may be missing.
		if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(major, uint32(n)))); err != nil &&
			err != unix.EEXIST {
			return "", &os.PathError{Op: "mknod", Path: name, Err: err}
		}
		err = onDevice(name, unix.LOOP_SET_FD, int(file.Fd()))
		if !errors.Is(err, unix.EBUSY) {
			return name, err
		}
	}
	return "", fmt.Errorf("attaching %s to a loop device: others have taken each one that was free", path)
}

// Detach detaches what a loop device is attached to, if anything. The kernel does it when the device has no user any
// more.
func Detach(device string) error {
	err := onDevice(device, unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

// Grow gives a loop device the size of what it is attached to.
func Grow(device string) error { return onDevice(device, unix.LOOP_SET_CAPACITY, 0) }

func onDevice(name string, request uint, value int) error {
	device, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		device, err = os.Open(name)
	}
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), request, value); err != nil {
		return &os.PathError{Op: "ioctl", Path: name, Err: err}
	}
	return nil
}
