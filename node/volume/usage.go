package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// HasSizeLimit reports whether a volume of the pod has a size limit that has to
// be watched: an emptyDir on disk. An emptyDir in memory or on huge pages is
// bounded by its file system.
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

// Exceeded implements [Manager]. It measures the emptyDir volumes on disk that
// have a size limit and returns, for the first that takes more, the message with
// which kubelet evicts the pod. The size is that of the allocated blocks; files that
// vanish while they are measured do not count. A volume exceeds its limit, too, if its
// containers have made it so that it cannot be measured, in several attempts. One that
// cannot be measured for another reason, such as a broken file system, is skipped and named in the error.
func (m *Reconciler) Exceeded(ctx context.Context, pod *v1.Pod, podDir string) (string, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p := m.pluginFor(v)
		if p == nil || !limited(v) {
			continue
		}
		used, err := measure(ctx, PlaceOf(podDir, p.Name(), v.Name).Dir, v.EmptyDir.SizeLimit.Value())
		if err != nil && madeByPod(err) {
			return fmt.Sprintf("EmptyDir volume %q with the limit %q cannot be measured: %v. ", v.Name,
				v.EmptyDir.SizeLimit.String(), err), nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q of pod %s: measuring it: %w", v.Name, runtime.RefOf(pod), err))
		}
		if used > v.EmptyDir.SizeLimit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name,
				v.EmptyDir.SizeLimit.String()), nil
		}
	}
	return "", errors.Join(errs...)
}

// Usage implements [Manager]. Files that vanish meanwhile do not count.
func (m *Reconciler) Usage(ctx context.Context, pod *v1.Pod, podDir string) (int64, error) {
	var sum int64
	var errs []error
	hidden := false
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		p := m.pluginFor(v)
		if p == nil || v.ConfigMap == nil && (v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault) {
			continue
		}
		used, err := measure(ctx, PlaceOf(podDir, p.Name(), v.Name).Dir, math.MaxInt64)
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q of pod %s: measuring it: %w", v.Name, runtime.RefOf(pod), err))
			hidden = hidden || madeByPod(err)
		}
		sum += min(used, math.MaxInt64-sum)
	}
	if hidden {
		sum = math.MaxInt64
	}
	return sum, errors.Join(errs...)
}

// DiskUsage returns the size of the allocated blocks of the files below a directory, in
// bytes, and 0 if there is no such directory. Links in it are not followed, and what is mounted
// there does not count. It takes the memory of a few directories' names, however many files
// there are.
func DiskUsage(ctx context.Context, dir string) (int64, error) { return diskUsage(ctx, dir) }

// tries is how often a measurement that fails is tried.
const tries = 3

// measure is diskUsage, again if it fails: containers write to the volume meanwhile. It ends when
// the sum is more than enough.
func measure(ctx context.Context, dir string, enough int64) (used int64, err error) {
	for range tries {
		if used, _, err = treeUsage(ctx, dir, enough); err == nil || ctx.Err() != nil {
			break
		}
	}
	return used, err
}

// maxTreeDepth bounds the memory of a walk. It is twice as many levels as a path can have
// (PATH_MAX).
const maxTreeDepth = 4096

var (
	errMoved   = errors.New("a directory was moved while the tree was read")
	errTooDeep = fmt.Errorf("a directory is more than %d levels deep", maxTreeDepth)
)

// madeByPod reports whether an error is what containers can make of a tree, so that it hides what they use: its depth,
// its modes, or changes while it is read. All others are failures of the machine and its file systems, such as EIO,
// EUCLEAN, ESTALE and ENOTCONN, for which no pod is evicted.
func madeByPod(err error) bool {
	for _, cause := range []error{errMoved, errTooDeep, syscall.EACCES, syscall.ENOENT, syscall.ENOTDIR,
		syscall.ELOOP} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}
