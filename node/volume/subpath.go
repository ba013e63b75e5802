package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// SubPath implements [Manager]. Missing directories are made with the mode of
// the volume's own, except in a read-only volume that is not one of files, as a claim can have it.
func (m *Reconciler) SubPath(_ context.Context, req runtime.SubPath) (string, error) {
	where := fmt.Sprintf("pod %s: container %s: sub-path %q of volume %q", req.Pod, req.Container,
		req.Path, req.VolumeName)
	if !filepath.IsLocal(req.Path) {
		return "", fmt.Errorf("%s: must be a relative path that stays in the volume", where)
	}
	keep := req.Volume.ReadOnly && !hasFiles(req)
	f, err := openInside(req.Volume.HostPath, req.Path, keep, m.before)
	if err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	defer func() { _ = f.Close() }()
	target := filepath.Join(req.Dir, subPathsDir, req.VolumeName, req.Container, strconv.Itoa(req.Index))
	path, err := bindOpened(f, target, m.before)
	if errors.Is(err, syscall.EPERM) { // the agent may not mount
		if req.Volume.ReadOnly { // a file here is replaced by the next version, and its path is gone
			return filepath.Join(req.Volume.HostPath, req.Path), nil
		}
		path, err = pathOf(f)
	}
	if err != nil {
		return "", fmt.Errorf("%s: mounting it: %w", where, err)
	}
	return path, nil
}

// hasFiles reports whether the volume is one of files, which the agent writes for the pod.
func hasFiles(req runtime.SubPath) bool {
	return slices.ContainsFunc([]Plugin{ConfigMap{}, Secret{}, DownwardAPI{}, Projected{}}, func(p Plugin) bool {
		return req.Volume.HostPath == PlaceOf(req.Dir, p.Name(), req.VolumeName).Dir
	})
}
