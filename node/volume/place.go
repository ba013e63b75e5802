package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// PlaceOf returns the place of a volume in the directory of a pod. The slash in the
// name of the plugin becomes "~", as in kubelet.
func PlaceOf(podDir, plugin, volume string) Place {
	plugin = strings.ReplaceAll(plugin, "/", "~")
	return Place{Dir: filepath.Join(podDir, volumesDir, plugin, volume),
		StateDir: filepath.Join(podDir, stateDir, plugin, volume),
		Device:   filepath.Join(podDir, devicesDir, plugin, volume)}
}

// placeOfState returns the place with a state directory.
func placeOfState(stateDir string) Place {
	plugin := filepath.Dir(stateDir)
	return PlaceOf(Place{StateDir: stateDir}.podDir(), filepath.Base(plugin), filepath.Base(stateDir))
}

// PodUID returns the UID of the pod, which is in the path of StateDir.
func (p Place) PodUID() types.UID { return types.UID(filepath.Base(p.podDir())) }

// LinkDevice makes Device a link to a path, in place of another link.
func (p Place) LinkDevice(to string) error {
	if at, err := os.Readlink(p.Device); err == nil && at == to {
		return nil
	}
	if err := os.Remove(p.Device); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(to, p.Device)
}

// podDir returns the directory of the pod.
func (p Place) podDir() string { return filepath.Dir(filepath.Dir(filepath.Dir(p.StateDir))) }

// Mounted reports whether something is mounted at Dir. It reads the list of mounts
// and not what is mounted, which may be a file system whose server does not answer.
func (p Place) Mounted() (bool, error) {
	dir, err := p.realDir()
	if err != nil || dir == "" {
		return false, err
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return false, err
	}
	for _, point := range points {
		if point == dir {
			return true, nil
		}
	}
	return false, nil
}

// Unmount unmounts everything that is mounted at Dir or below it, the innermost
// first. It succeeds if nothing is.
func (p Place) Unmount() error {
	dir, err := p.realDir()
	if err != nil || dir == "" {
		return err
	}
	return unmountAll(dir)
}

// realDir returns Dir without symbolic links above it, as the kernel lists mount
// points, or nothing if there is no directory above it. Dir itself is not looked at.
func (p Place) realDir() (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(p.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(p.Dir)), nil
}
