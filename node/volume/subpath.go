package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// SubPath implements [Manager]. Missing directories are made with the mode of
// the volume's own, except in a read-only volume that is not one of files, as a claim can have it. A volume of a
// [PersistentPlugin] that does not answer delays SubPath until ctx ends.
func (m *Reconciler) SubPath(ctx context.Context, req runtime.SubPath) (string, error) {
	if !m.isPersistent(req) {
		return m.subPath(ctx, req)
	}
	found := make(chan string, 1) // of one, so that a call that stays behind ends
	err := m.checks.do(ctx, req.Volume.HostPath, func(ctx context.Context) error {
		path, err := m.subPath(ctx, req)
		found <- path
		return err
	})
	if err != nil {
		return "", err
	}
	return <-found, nil
}

// isPersistent reports whether a [PersistentPlugin] has set up the volume in the directory of the pod.
func (m *Reconciler) isPersistent(req runtime.SubPath) bool {
	return slices.ContainsFunc(m.plugins, func(p Plugin) bool {
		_, ok := p.(ofPlugin)
		return ok && strings.HasPrefix(req.Volume.HostPath,
			filepath.Dir(PlaceOf(req.Dir, p.Name(), req.VolumeName).Dir)+"/")
	})
}

func (m *Reconciler) subPath(ctx context.Context, req runtime.SubPath) (string, error) {
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
	if ctx.Err() != nil { // the call was left behind, and the pod may be gone
		return "", context.Cause(ctx)
	}
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
