package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// storage is what a pod uses of the node's ephemeral storage, in bytes.
type storage struct {
	// containers are the writable layer and the logs of each container.
	containers map[string]int64
	// volumes are the volumes on disk and the files in the directory of the pod, which its containers can
	// write to: the hosts file and the termination messages. They are taken together;
	// [math.MaxInt64] if the containers hide what a volume has.
	volumes int64
}

// exceeded returns kubelet's message for the eviction of a pod that uses more ephemeral
// storage than it or one of its containers may, and "" otherwise (kubelet:
// localStorageEviction).
func (u storage) exceeded(pod *v1.Pod) string {
	if limit, ok := podStorageLimit(pod); ok {
		sum := u.volumes
		for _, n := range u.containers {
			sum = add(sum, n)
		}
		if resource.NewQuantity(sum, resource.BinarySI).Cmp(limit) > 0 {
			return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
				limit.String())
		}
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		limit := c.Resources.Limits.StorageEphemeral()
		if kind == podspec.InitContainer && !podspec.IsSidecar(c) {
			continue
		}
		if limit.Sign() > 0 && limit.CmpInt64(u.containers[c.Name]) < 0 {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return ""
}

// add returns the sum of two sizes, which are not negative, or the largest number.
func add(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// podStorageLimit returns the sum of the limits of the containers. There is one as soon as one
// container has a limit.
func podStorageLimit(pod *v1.Pod) (resource.Quantity, bool) {
	limit, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return limit, ok
}

// hasStorageLimit reports whether the storage of the pod has to be measured.
func hasStorageLimit(pod *v1.Pod) bool {
	for _, c := range podspec.Containers(&pod.Spec) {
		if _, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}

// maxPodFiles is the number of files that are looked at in the directory of a pod. It has a few for
// each container.
const maxPodFiles = 10_000

// storageExceeded measures the storage of the pod. What cannot be measured does not count, and the error names it. A
// volume that the containers have made so that it cannot be measured exceeds each limit, see [volume.Manager].
func (s *Syncer) storageExceeded(ctx context.Context, pod *v1.Pod, dir string,
	observed *runtime.PodStatus) (string, error) {
	use := storage{containers: map[string]int64{}}
	var errs []error
	count := func(n int64, err error) int64 {
		if err != nil {
			errs = append(errs, err)
		}
		return n
	}
	use.volumes = count(s.deps.Volumes.Usage(ctx, pod, dir))
	// kubelet counts the hosts file, and not the messages.
	if files, err := safefile.FilesIn(dir, maxPodFiles); err == nil {
		use.volumes = add(use.volumes, int64(min(files.Bytes, math.MaxInt64)))
	} else if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	layers, _ := runtime.Optional[runtime.DiskUsageReporter](s.deps.Runtime)
	for _, c := range podspec.Containers(&pod.Spec) {
		instance := observed.Newest(c.Name)
		if instance == nil {
			continue
		}
		if s.opts.Host.PodLogsDir != "" {
			logs := filepath.Join(s.opts.Host.PodLogsDir, runtime.RefOf(pod).LogDirName(), c.Name)
			use.containers[c.Name] = add(use.containers[c.Name], count(volume.DiskUsage(ctx, logs)))
		}
		if layers != nil && instance.State == runtime.ContainerRunning {
			use.containers[c.Name] = add(use.containers[c.Name],
				max(0, count(layers.ContainerDiskUsage(ctx, instance.ID))))
		}
	}
	return use.exceeded(pod), errors.Join(errs...)
}
