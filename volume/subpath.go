package volume

import (
	"context"
	"fmt"
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
