package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// EmptyDir is the [Plugin] for a directory that is empty at first and exists as long
// as the pod.
type EmptyDir struct {
	// Allocatable is what pods can have of the node. Its memory is the largest size of a
	// volume in memory.
	Allocatable v1.ResourceList
	// NodeAllocatable returns it as it is now, in place of Allocatable. nil: Allocatable.
	NodeAllocatable func() v1.ResourceList
	// Modes is that of [Options].EmptyDirModes.
	Modes bool
}

var _ Plugin = EmptyDir{}

// Name returns kubelet's name of the plugin.
func (EmptyDir) Name() string { return "kubernetes.io/empty-dir" }

// Supports reports whether the volume is an empty directory.
func (EmptyDir) Supports(v *v1.Volume) bool { return v.EmptyDir != nil }

// SetUp makes the directory, with mode 0777 or its own and the pod's fsGroup. On huge pages it is a
// hugetlbfs with pages of the size that the medium names, or that the containers request. It is
// bounded by the volume's size limit, if there is one. In memory it is a tmpfs whose size is the smallest of the
// volume's size limit, the pod's memory limit and the allocatable memory of the node.
func (p EmptyDir) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	dir, source, access, before := req.Dir, req.Volume.EmptyDir, accessOf(req.Pod), stepsOf(ctx)
	if p.Modes && source.Mode != nil {
		access = access.withMode(*source.Mode)
	}
	if err := access.ensureDir(ctx, dir, before); err != nil {
		return runtime.Volume{}, err
	}
	if source.Medium != v1.StorageMediumDefault {
		if err := before.step("mount the volume"); err != nil {
			return runtime.Volume{}, err
		}
	}
	switch source.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		if err := ensureTmpfs(dir, memorySize(req.Pod, source.SizeLimit, Sources{Allocatable: p.Allocatable,
			NodeAllocatable: p.NodeAllocatable}.allocatable()), access); err != nil {
			return runtime.Volume{}, fmt.Errorf("emptyDir in memory: %w", err)
		}
	default:
		size, err := hugePageSize(source.Medium, req.Pod)
		if err != nil {
			return runtime.Volume{}, err
		}
		if err := ensureMount(dir,
			func() error { return mountHugePages(dir, size, source.SizeLimit, access) }); err != nil {
			return runtime.Volume{}, fmt.Errorf("emptyDir on huge pages: %w", err)
		}
	}
	return runtime.Volume{HostPath: dir, Relabel: true}, nil
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

// withMode returns the access with the mode, whose sticky bit counts. The group of a pod with an fsGroup has all
// rights (kubelet: SetVolumeOwnership).
func (a access) withMode(mode int32) access {
	a.mode = fs.FileMode(mode).Perm() | a.mode&fs.ModeSetgid
	if mode&0o1000 != 0 {
		a.mode |= fs.ModeSticky
	}
	if a.gid >= 0 {
		a.mode |= 0o770
	}
	return a
}

// makeDir makes a directory that has its mode and group from the first moment on,
// so that after a crash it is either complete or not there.
func (a access) makeDir(ctx context.Context, dir string, before steps) error {
	parent, name := filepath.Split(dir)
	if err := before.step("make the parent of %s", name); err != nil {
		return err
	}
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	unfinished := filepath.Join(parent, "."+name) // no volume's name begins with a dot
	if err := before.step("make .%s", name); err != nil {
		return err
	}
	if err := removeAll(ctx, unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := before.step("grant .%s", name); err != nil {
		return err
	}
	if a.gid >= 0 {
		if err := os.Lchown(unfinished, -1, a.gid); err != nil {
			return fmt.Errorf("giving the volume to fsGroup %d: %w", a.gid, err)
		}
	}
	if err := before.step("chmod .%s", name); err != nil {
		return err
	}
	if err := os.Chmod(unfinished, a.mode); err != nil {
		return err
	}
	if err := before.step("rename .%s", name); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

// hugePageSize returns the size of the pages of a medium, in bytes. The containers must
// request such pages, and only pages of one size if the medium names none (kubelet:
// getPageSizeMountOption).
func hugePageSize(medium v1.StorageMedium, pod *v1.Pod) (int64, error) {
	suffix, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !named && medium != v1.StorageMediumHugePages {
		return 0, fmt.Errorf("unknown storage medium %q: %w", medium, ErrUnsupported)
	}
	var want resource.Quantity
	if named {
		var err error
		if want, err = podspec.ParseQuantity(suffix); err != nil || want.Sign() <= 0 {
			return 0, fmt.Errorf("storage medium %q: %q is no size", medium, suffix)
		}
	}
	var requests []v1.ResourceList
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		requests = append(requests, pod.Spec.Resources.Requests)
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind != podspec.EphemeralContainer {
			requests = append(requests, c.Resources.Requests)
		}
	}
	var found int64
	for _, list := range requests {
		for name := range list {
			suffix, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			size, err := podspec.ParseQuantity(suffix)
			if err != nil {
				return 0, fmt.Errorf("resource %s: %q is no size", name, suffix)
			}
			if named && size.Cmp(want) != 0 {
				continue
			}
			if found != 0 && found != size.Value() {
				return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
			}
			found = size.Value()
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages",
			medium)
	}
	return found, nil
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
	// A pod has a memory limit only if it is one of the pod itself, or if all its containers have
	// one, init containers too (kubelet: ResourceConfigForPod).
	if pod.Spec.Resources == nil || pod.Spec.Resources.Limits.Memory().IsZero() {
		for kind, c := range podspec.Containers(&pod.Spec) {
			if kind != podspec.EphemeralContainer && c.Resources.Limits.Memory().IsZero() {
				return size
			}
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	atMost(limits.Memory().Value())
	return size
}
