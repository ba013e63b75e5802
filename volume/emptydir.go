package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EmptyDir is the [Plugin] for a directory that is empty at first and exists as long
// as the pod.
type EmptyDir struct {
	// Allocatable is what pods can have of the node. Its memory is the largest size of a
	// volume in memory.
	Allocatable v1.ResourceList
}

var _ Plugin = EmptyDir{}

// Name returns kubelet's name of the plugin.
func (EmptyDir) Name() string { return "kubernetes.io/empty-dir" }

// Supports reports whether the volume is an empty directory.
func (EmptyDir) Supports(v *v1.Volume) bool { return v.EmptyDir != nil }

// SetUp makes the directory, with mode 0777 and the pod's fsGroup. In memory it is
// a tmpfs whose size is the smallest of the volume's size limit, the pod's memory limit
// and the allocatable memory of the node.
func (p EmptyDir) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	dir, source, access := req.Dir, req.Volume.EmptyDir, accessOf(req.Pod)
	if err := access.ensureDir(ctx, dir); err != nil {
		return runtime.Volume{}, err
	}
	switch source.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		if err := ensureTmpfs(dir, memorySize(req.Pod, source.SizeLimit, p.Allocatable), access); err != nil {
			return runtime.Volume{}, fmt.Errorf("emptyDir in memory: %w", err)
		}
	default:
		return runtime.Volume{}, fmt.Errorf("emptyDir medium %q: %w; use \"\" or \"Memory\"", source.Medium, ErrUnsupported)
	}
	return runtime.Volume{HostPath: dir, Relabel: true, Owned: true}, nil
}

// TearDown unmounts the directory; the manager removes it.
func (EmptyDir) TearDown(_ context.Context, req TearDownRequest) error { return unmountOwn(req.Dir) }

// access is the mode and the group of a volume that is made for a pod.
type access struct {
	mode fs.FileMode
	gid  int // -1 leaves the group
}

// accessOf gives access to all users. The volume belongs to the pod's fsGroup, with
// the set-group-ID bit, so that what is made in it belongs to the group, too.
func accessOf(pod *v1.Pod) access {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return access{0o777 | fs.ModeSetgid, int(*sc.FSGroup)}
	}
	return access{0o777, -1}
}

// makeDir makes a directory that has its mode and group from the first moment on,
// so that after a crash it is either complete or not there.
func (a access) makeDir(ctx context.Context, dir string) error {
	parent, name := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	unfinished := filepath.Join(parent, "."+name) // no volume's name begins with a dot
	if err := removeAll(ctx, unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if a.gid >= 0 {
		if err := os.Lchown(unfinished, -1, a.gid); err != nil {
			return fmt.Errorf("giving the volume to fsGroup %d: %w", a.gid, err)
		}
	}
	if err := os.Chmod(unfinished, a.mode); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

// memorySize returns the size of a volume in memory, in bytes; 0 means the kernel's
// default (kubelet: calculateEmptyDirMemorySize).
func memorySize(pod *v1.Pod, limit *resource.Quantity, allocatable v1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	atMost := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	if limit != nil {
		atMost(limit.Value())
	}
	// A pod has a memory limit only if all its containers have one.
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	for i := range pod.Spec.Containers {
		if _, has := pod.Spec.Containers[i].Resources.Limits[v1.ResourceMemory]; !has && !resourcehelper.IsPodLevelResourcesSet(pod) {
			return size
		}
	}
	atMost(limits.Memory().Value())
	return size
}
