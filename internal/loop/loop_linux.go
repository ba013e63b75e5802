package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// major is the major number of loop devices (Documentation/admin-guide/devices.txt of Linux).
const major = 7

// Of returns the loop devices that the file or device at the path is attached to. Another path of it does not count.
func Of(path string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(backing)) == path { // else it is detached meanwhile, or another one's
			devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return devices, nil
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
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("attaching %s to a loop device: %w; load the kernel module loop", path, err)
	}
	defer control.Close()
	for range 100 { // others may take the device that is free
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
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
