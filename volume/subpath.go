package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// SubPath implements [VolumeManager]. Missing directories are made with the mode of
// the volume's own.
func (m *Manager) SubPath(_ context.Context, req runtime.SubPath) (string, error) {
	where := fmt.Sprintf("pod %s: container %s: sub-path %q of volume %q", req.Pod, req.Container, req.Path, req.VolumeName)
	if !filepath.IsLocal(req.Path) {
		return "", fmt.Errorf("%s: must be a relative path that stays in the volume", where)
	}
	f, err := openInside(req.Volume.HostPath, req.Path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	defer func() { _ = f.Close() }()
	target := filepath.Join(req.Dir, subPathsDir, req.VolumeName, req.Container, strconv.Itoa(req.Index))
	path, err := bindOpened(f, target)
	if err != nil {
		return "", fmt.Errorf("%s: mounting it: %w", where, err)
	}
	return path, nil
}

// openInside opens the path below the volume, after making it if it is missing.
func openInside(volume, path string) (*os.File, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := openNoWait(root, path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(path, info.Mode().Perm()); err != nil {
		return nil, err
	}
	return openNoWait(root, path)
}
