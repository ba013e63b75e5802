package mounting

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DetachLoops detaches the loop devices of the file or device at the path: kubelet makes one for each block volume of a
// pod, so that the device stays as long as the pod.
func DetachLoops(path string) error {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(backing)) != path {
			continue // detached meanwhile, or another one's
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		device, err := os.OpenFile(filepath.Join("/dev", name), os.O_RDWR, 0)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
			errs = append(errs, &os.PathError{Op: "detach", Path: device.Name(), Err: err})
		}
		_ = device.Close()
	}
	return errors.Join(errs...)
}
