package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// HasSizeLimit reports whether a volume of the pod has a size limit that has to
// be watched: an emptyDir on disk. An emptyDir in memory is bounded by its file
// system.
func HasSizeLimit(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limited(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func limited(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault &&
		v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0
}

// Exceeded implements [VolumeManager]. It measures the emptyDir volumes on disk that
// have a size limit and returns, for the first that takes more, the message with
// which kubelet evicts the pod. The size is that of the allocated blocks; files that
// vanish while they are measured do not count.
func (m *Manager) Exceeded(ctx context.Context, pod *v1.Pod, podDir string) (string, error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p := m.pluginFor(v)
		if p == nil || !limited(v) {
			continue
		}
		used, err := diskUsage(ctx, PlaceOf(podDir, p.Name(), v.Name).Dir)
		if err != nil {
			return "", fmt.Errorf("volume %q of pod %s: measuring it: %w", v.Name, runtime.RefOf(pod), err)
		}
		if used > v.EmptyDir.SizeLimit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String()), nil
		}
	}
	return "", nil
}

// diskUsage adds up the blocks of the files below dir, in bytes, each file once
// however many names it has.
func diskUsage(ctx context.Context, dir string) (int64, error) {
	var sum int64
	seen := map[fileID]struct{}{}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		id, bytes, links := allocated(info)
		if links > 1 && !d.IsDir() {
			if _, counted := seen[id]; counted {
				return nil
			}
			seen[id] = struct{}{}
		}
		sum += bytes
		return nil
	})
	return sum, err
}

// fileID tells files of a machine apart.
type fileID struct{ dev, ino uint64 }
