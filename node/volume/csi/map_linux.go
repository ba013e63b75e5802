package csi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/loop"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// mapDevice holds the device at the target open until unmapDevice, as kubelet does it: it mounts the device for the
// pod, and attaches a loop device to that. Otherwise the device could go, and another one get its number, which is all
// that containers have of it.
func (p *Plugin) mapDevice(req volume.PersistentRequest, target string) error {
	path := p.mapPath(req.Place)
	var device, mapped unix.Stat_t
	if err := unix.Stat(target, &device); err != nil || device.Mode&unix.S_IFMT != unix.S_IFBLK {
		return err // a driver of tests without root has files only
	}
	err := unix.Stat(path, &mapped)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || mapped.Rdev != device.Rdev { // not mounted, as after a reboot, or another device
		if err := p.unmapDevice(req.Place); err != nil {
			return err
		}
		if err := p.step("map the device"); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE, 0o750)
		if err != nil {
			return err
		}
		_ = file.Close()
		if err := unix.Mount(target, path, "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "bind", Path: path, Err: err}
		}
	}
	if devices, err := loop.Of(path); err != nil || len(devices) > 0 {
		return err
	}
	if err := p.step("attach a loop device"); err != nil {
		return err
	}
	_, err = loop.Attach(path)
	return err
}
