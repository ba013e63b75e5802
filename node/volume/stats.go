package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// VolumeStats implements [Manager]. It returns what the volumes of the pod use: of a claim, and of
// a volume in memory or on huge pages, the usage of its file system, and of any other volume that was
// made for the pod the size of its files, as the size of [Reconciler.Usage]. The latter also of a volume on
// huge pages without a size limit: its file system reports no usage. Volumes of the host and of images
// have none, nor have volumes that were not set up. A volume of a [PersistentPlugin] has what the plugin returns, or the
// usage of its file system if the plugin cannot measure; then a device has none. The result is valid also with an error, which joins those of the
// volumes that are missing.
func (m *Reconciler) VolumeStats(ctx context.Context, pod *v1.Pod, podDir string) ([]statsv1alpha1.VolumeStats, error) {
	var out []statsv1alpha1.VolumeStats
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p := m.pluginFor(v)
		if p == nil || v.HostPath != nil || v.Image != nil {
			continue
		}
		usage, err := m.volumeStats(ctx, p, pod, v, podDir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("volume %q of pod %s: measuring it: %w", v.Name, runtime.RefOf(pod), err))
		default:
			out = append(out, usage)
		}
	}
	return out, errors.Join(errs...)
}

// persistentPlugin returns the plugin with the name, or one without a PersistentPlugin.
func (m *Reconciler) persistentPlugin(name string) ofPlugin {
	for _, p := range m.plugins {
		if of, ok := p.(ofPlugin); ok && of.Name() == name {
			return of
		}
	}
	return ofPlugin{}
}

// stats is Stats without a panic.
func (p ofPlugin) stats(ctx context.Context, place Place) (stats statsv1alpha1.FsStats, err error) {
	err = runtime.Recover(func() (err error) {
		stats, err = p.Stats(ctx, place)
		return err
	})
	return stats, err
}

func (m *Reconciler) volumeStats(ctx context.Context, p Plugin, pod *v1.Pod, v *v1.Volume,
	podDir string) (statsv1alpha1.VolumeStats, error) {
	out, place := statsv1alpha1.VolumeStats{Name: v.Name}, PlaceOf(podDir, p.Name(), v.Name)
	dir, claim := place.Dir, ""
	switch {
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = pod.Name + "-" + v.Name
	}
	persistent, _ := p.(ofPlugin)
	block := false
	if claim != "" {
		out.PVCRef = &statsv1alpha1.PVCReference{Namespace: pod.Namespace, Name: claim}
		if bound, ok := readBound(filepath.Join(place.StateDir, boundFile)); ok && bound.Volume != nil {
			if persistent = m.persistentPlugin(bound.Plugin); persistent.PersistentPlugin == nil {
				return out, fs.ErrNotExist
			}
			block, place = bound.Block, PlaceOf(podDir, bound.Plugin, bound.Name)
		} else if ok {
			dir = bound.Path
		}
	}
	if persistent.PersistentPlugin != nil {
		usage, err := persistent.stats(ctx, place)
		if !errors.Is(err, ErrUnsupported) {
			out.FsStats = usage
			return out, err
		}
		published, err := persistent.Published(place)
		if err != nil {
			return out, err
		}
		if published == nil || block {
			return out, fs.ErrNotExist
		}
		dir = published.HostPath
	}
	if _, err := os.Stat(dir); err != nil {
		return out, err
	}
	size, err := safefile.DiskSize(dir)
	switch {
	case err == nil:
		used := size.InodesUsed()
		out.FsStats = statsv1alpha1.FsStats{
			CapacityBytes: &size.Capacity, AvailableBytes: &size.Available, UsedBytes: &size.Used, Inodes: &size.Inodes,
			InodesFree: &size.InodesFree, InodesUsed: &used,
		}
	case !errors.Is(err, errors.ErrUnsupported):
		return out, err
	}
	out.Time = metav1.NewTime(time.Now())
	if claim != "" || persistent.PersistentPlugin != nil {
		return out, nil
	}
	// A walk holds directories open, so that the volume could not be unmounted at the end of its pod.
	// A hugetlbfs without a limit reports 0 for everything, and is walked nevertheless.
	if mounted, err := isMountPoint(dir); err != nil || mounted && size.Capacity > 0 && m.stateless[p.Name()] {
		return out, err
	}
	var bytes, files int64
	for range tries {
		if bytes, files, err = treeUsage(ctx, dir, math.MaxInt64); err == nil || ctx.Err() != nil {
			break
		}
	}
	used, inodes := uint64(max(bytes, 0)), uint64(max(files, 0))
	out.UsedBytes, out.InodesUsed = &used, &inodes
	return out, err
}
