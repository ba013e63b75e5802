package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EmptyDir is the [Plugin] for a directory that begins empty and lives as long as
// the pod.
type EmptyDir struct{}

var _ Plugin = EmptyDir{}

// Name returns kubelet's name of the plugin.
func (EmptyDir) Name() string { return "kubernetes.io/empty-dir" }

// Supports reports whether the volume is an empty directory.
func (EmptyDir) Supports(v *v1.Volume) bool { return v.EmptyDir != nil }

// SetUp makes the directory, with mode 0777 and the pod's fsGroup. In memory it is
// a tmpfs whose size is the smaller of the volume's size limit and the pod's
// memory limit, if there is one.
func (EmptyDir) SetUp(_ context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error) {
	made := false
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
			return runtime.Volume{}, err
		}
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return runtime.Volume{}, err
		}
		made = true
	} else if err != nil {
		return runtime.Volume{}, err
	}
	switch v.EmptyDir.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		mounted, err := isMountPoint(dir)
		if err != nil {
			return runtime.Volume{}, err
		}
		if !mounted {
			if err := mountTmpfs(dir, memorySize(pod, v.EmptyDir.SizeLimit)); err != nil {
				return runtime.Volume{}, fmt.Errorf("emptyDir in memory: %w", err)
			}
			made = true
		}
	default:
		return runtime.Volume{}, fmt.Errorf("emptyDir medium %q: %w; use \"\" or \"Memory\"", v.EmptyDir.Medium, ErrUnsupported)
	}
	if made {
		// Mkdir is subject to the umask.
		if err := os.Chmod(dir, 0o777); err != nil {
			return runtime.Volume{}, err
		}
	}
	if err := setGroup(pod, dir); err != nil {
		return runtime.Volume{}, err
	}
	return runtime.Volume{HostPath: dir, Relabel: true, Owned: true}, nil
}

// setGroup gives the directory to the pod's fsGroup, with the set-group-ID bit, so
// that what is made in it belongs to the group too.
func setGroup(pod *v1.Pod, dir string) error {
	if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	gid := int(*pod.Spec.SecurityContext.FSGroup)
	if ownedByGroup(info, gid) && info.Mode()&fs.ModeSetgid != 0 {
		return nil
	}
	if err := os.Lchown(dir, -1, gid); err != nil {
		return fmt.Errorf("giving the volume to fsGroup %d: %w", gid, err)
	}
	return os.Chmod(dir, info.Mode().Perm()|0o770|fs.ModeSetgid)
}

// memorySize is the size of a volume in memory, in bytes; 0 leaves it to the
// kernel.
func memorySize(pod *v1.Pod, limit *resource.Quantity) int64 {
	var size int64
	if limit != nil {
		size = limit.Value()
	}
	// A pod has a memory limit only if all its containers have one.
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	mem, ok := limits[v1.ResourceMemory]
	for _, c := range pod.Spec.Containers {
		if _, has := c.Resources.Limits[v1.ResourceMemory]; !has && !resourcehelper.IsPodLevelResourcesSet(pod) {
			ok = false
		}
	}
	if ok && mem.Value() > 0 && (size == 0 || mem.Value() < size) {
		size = mem.Value()
	}
	return size
}
