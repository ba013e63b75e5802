package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Limits of the files that the agent writes for a pod. A small spec can ask for any amount:
// items can name one key of a config map any number of times, and a path can have thousands of directories. The
// files are in the memory of the agent while they are written, and then in a file system in memory
// or on the disk of the node, of which no limit of the pod counts them.
const (
	// maxFiles is the limit for the volumes of a pod together, in bytes. It is many times what
	// pods have: an API server stores objects of 1 MiB at most.
	maxFiles = 128 << 20
	// entrySize is what a file or a directory counts beside its content.
	entrySize = 4 << 10
	// maxLevels is the number of directories above a file. Each of them is opened when a file below
	// them is.
	maxLevels = 64
)

// errTooMuch means that a pod has more files than maxFiles.
var errTooMuch = errors.New("too many files")

// work is what the volumes of a pod share in one call of [Reconciler.SetUp].
type work struct {
	// left is what is left of maxFiles.
	left int
	// nested is the result of nestedMountPoints for a pod; nil before it is needed.
	nested map[string][]string
	pod    *v1.Pod
}

func newWork() *work { return &work{left: maxFiles} }

type workKey struct{}

// withWork hands the work to the plugins.
func withWork(ctx context.Context) context.Context {
	return context.WithValue(ctx, workKey{}, newWork())
}

// workOf returns the work of the call, or a new one for a plugin that is not called by a [Reconciler].
func workOf(ctx context.Context) *work {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		return w
	}
	return newWork()
}

// take takes from what is left: entries, which are files and directories, and bytes of their content.
func (w *work) take(entries, bytes int) error {
	if w.left -= entries*entrySize + bytes; w.left < 0 {
		return fmt.Errorf("%w: the files of secrets, config maps and other sources in the volumes of the pod have "+
			"more than %d bytes, with %d bytes for each file and directory; "+
			"use fewer items", errTooMuch, maxFiles, entrySize)
	}
	return nil
}

// directories are those of one volume.
type directories map[string]struct{}

// above adds the directories above a path, and returns how many of them are new.
func (d directories) above(name string) (added int) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := d[dir]; ok {
			break
		}
		d[dir] = struct{}{}
		added++
	}
	return added
}

// nestedIn returns the paths of nestedMountPoints for a volume. They count as directories.
func (w *work) nestedIn(pod *v1.Pod, volume string) ([]string, error) {
	if w.nested == nil || w.pod != pod {
		w.nested, w.pod = nestedMountPoints(pod), pod
	}
	nested, dirs := w.nested[volume], directories{}
	for _, dir := range nested {
		if strings.Count(dir, "/") >= maxLevels {
			return nil, fmt.Errorf("%.100s…: must have at most %d levels below the mount of the volume", dir, maxLevels)
		}
		if err := w.take(1+dirs.above(dir), 0); err != nil {
			return nil, err
		}
	}
	return nested, nil
}

// nestedMountPoints returns, by volume, the paths in a volume at which containers of the pod mount other
// volumes. They must exist, since the volume is read-only (kubelet: nested_volumes.go). A path
// below another one is left out. The time is proportional to what is mounted below each mount.
func nestedMountPoints(pod *v1.Pod) map[string][]string {
	nested := map[string][]string{}
	for _, c := range podspec.Containers(&pod.Spec) {
		// What is below a path follows it in the order of these.
		points := make([]string, len(c.VolumeMounts))
		for i := range c.VolumeMounts {
			points[i] = mountPoint(&c.VolumeMounts[i])
		}
		slices.Sort(points)
		for i := range c.VolumeMounts {
			volume, at, last := c.VolumeMounts[i].Name, mountPoint(&c.VolumeMounts[i]), ""
			first, _ := slices.BinarySearch(points, at)
			for _, p := range points[first:] {
				if !strings.HasPrefix(p, at) {
					break
				}
				if p == at || last != "" && strings.HasPrefix(p, last) {
					continue
				}
				last = p
				nested[volume] = append(nested[volume], strings.TrimSuffix(p[len(at):], "/"))
			}
		}
	}
	return nested
}

// mountPoint returns the path of a mount with one "/" at its end.
func mountPoint(m *v1.VolumeMount) string {
	return strings.TrimSuffix(path.Clean(m.MountPath), "/") + "/"
}
