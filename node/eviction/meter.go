package eviction

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// UsagesOptions are the settings of [Usages]. What is missing remains unknown.
type UsagesOptions struct {
	// PodCgroup returns the cgroup of a pod, as the method Parent of a *cgroup.Pods of node/cgroup.
	PodCgroup func(pod *v1.Pod) string
	// PodLogsDir is the directory of the logs of pods.
	PodLogsDir string

	// cgroup is /sys/fs/cgroup in tests.
	cgroup string
}

// Usages is the default [Meter]. Memory and processes are those of the cgroups of pods: that takes less than a
// millisecond for a pod, and is what is used now. Without them they are those that the runtime reports, as writable
// layers are. Logs and volumes are their files.
type Usages struct {
	rt   runtime.Runtime
	opts UsagesOptions
}

var _ Meter = (*Usages)(nil)

// NewUsages returns a meter for the pods of a runtime.
func NewUsages(rt runtime.Runtime, opts UsagesOptions) (*Usages, error) {
	if rt == nil {
		return nil, errors.New("eviction: a Runtime is required")
	}
	if opts.cgroup == "" {
		opts.cgroup = "/sys/fs/cgroup"
	}
	return &Usages{rt, opts}, nil
}

// atOnce is the number of pods whose files are measured at once.
const atOnce = 4

// Measure implements [Meter].
func (u *Usages) Measure(ctx context.Context, node lifecycle.Node, s Signal, pods []Pod) error {
	files := s.pressure() == diskPressure
	missing := files
	if !files {
		for i := range pods {
			if !u.cgroup(node, &pods[i], s.Resource()) {
				missing = true
			}
		}
	}
	var err error
	if missing {
		err = u.reported(ctx, node, pods)
	}
	if files {
		u.files(ctx, node, pods)
		if ctx.Err() != nil {
			err = errors.Join(err, fmt.Errorf("measuring the files of pods: %w", context.Cause(ctx)))
		}
	}
	return err
}

// cgroup reads the cgroup of a pod, and reports whether it could.
func (u *Usages) cgroup(node lifecycle.Node, p *Pod, name v1.ResourceName) bool {
	if u.opts.PodCgroup == nil {
		return false
	}
	path := u.opts.PodCgroup(p.Pod)
	if path == "" {
		return false
	}
	switch name {
	case v1.ResourceMemory:
	case resourcePIDs:
		n, err := processesOf(u.opts.cgroup, path)
		if err != nil {
			return false
		}
		p.Usage.Processes = &n
		return true
	default:
		return false
	}
	_, used, err := memoryOf(u.opts.cgroup, path)
	if err != nil {
		return false
	}
	p.Usage.Memory = &used
	names, ids := running(node, p.Pod.UID)
	for id, path := range containersOf(u.opts.cgroup, path, ids) {
		if _, used, err := memoryOf(u.opts.cgroup, path); err == nil {
			u.container(p, names[id]).Memory = &used
		}
	}
	return true
}

// running returns the IDs of the containers of a pod that run, and their names.
func running(node lifecycle.Node, uid types.UID) (names map[string]string, ids []string) {
	status, ok := node.RuntimeStatus(uid)
	if !ok {
		return nil, nil
	}
	names = map[string]string{}
	for i := range status.Containers {
		if c := &status.Containers[i]; c.State == runtime.ContainerRunning && names[c.ID.ID] == "" {
			names[c.ID.ID] = c.Name
			ids = append(ids, c.ID.ID)
		}
	}
	return names, ids
}

// container returns the usage of a container.
func (u *Usages) container(p *Pod, name string) *ContainerUsage {
	for i := range p.Usage.Containers {
		if p.Usage.Containers[i].Name == name {
			return &p.Usage.Containers[i]
		}
	}
	p.Usage.Containers = append(p.Usage.Containers, ContainerUsage{Name: name})
	return &p.Usage.Containers[len(p.Usage.Containers)-1]
}

// reported adds what the runtime reports. What is known already stays.
func (u *Usages) reported(ctx context.Context, node lifecycle.Node, pods []Pod) error {
	reporter, ok := runtime.Optional[runtime.UsageReporter](u.rt)
	if !ok {
		return nil
	}
	list, err := reporter.ListUsage(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the usage of pods: %w", err)
	}
	sandboxes, containers := map[string]*runtime.SandboxUsage{}, map[string]*runtime.ContainerUsage{}
	for i := range list.Sandboxes {
		sandboxes[list.Sandboxes[i].ID] = &list.Sandboxes[i]
	}
	for i := range list.Containers {
		containers[list.Containers[i].ID] = &list.Containers[i]
	}
	for i := range pods {
		p := &pods[i]
		status, ok := node.RuntimeStatus(p.Pod.UID)
		if !ok {
			continue
		}
		var memory, processes *int64
		for j := range status.Sandboxes {
			if s := sandboxes[status.Sandboxes[j].ID]; s != nil {
				if s.Memory != nil {
					memory = plus(memory, s.Memory.WorkingSetBytes)
				}
				processes = plus(processes, s.Processes)
			}
		}
		var sum *int64
		names, ids := running(node, p.Pod.UID)
		for _, id := range ids {
			c := containers[id]
			if c == nil {
				continue
			}
			cu := u.container(p, names[id])
			if c.Memory != nil {
				sum = plus(sum, c.Memory.WorkingSetBytes)
				if cu.Memory == nil {
					cu.Memory = plus(nil, c.Memory.WorkingSetBytes)
				}
			}
			if c.WritableLayer != nil {
				p.Usage.Writable.Bytes = plus(p.Usage.Writable.Bytes, c.WritableLayer.UsedBytes)
				p.Usage.Writable.Inodes = plus(p.Usage.Writable.Inodes, c.WritableLayer.InodesUsed)
				cu.Disk = plus(cu.Disk, c.WritableLayer.UsedBytes)
			}
		}
		if p.Usage.Memory == nil {
			if p.Usage.Memory = memory; memory == nil {
				p.Usage.Memory = sum
			}
		}
		if p.Usage.Processes == nil {
			p.Usage.Processes = processes
		}
	}
	return nil
}

// plus returns the sum of two amounts. One that is unknown does not count.
func plus(a *int64, b *uint64) *int64 {
	if b == nil {
		return a
	}
	n := int64(min(*b, 1<<60))
	if a != nil {
		n = min(n, maxAmount-*a) + *a
	}
	return &n
}

// files measures logs and volumes until ctx ends.
func (u *Usages) files(ctx context.Context, node lifecycle.Node, pods []Pod) {
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range pods {
		select {
		case <-ctx.Done():
		case free <- struct{}{}:
			all.Go(func() {
				defer func() { <-free }()
				_ = runtime.Recover(func() error { u.filesOf(ctx, node, &pods[i]); return nil })
			})
		}
	}
	all.Wait()
}

func (u *Usages) filesOf(ctx context.Context, node lifecycle.Node, p *Pod) {
	pod := p.Pod
	if u.opts.PodLogsDir != "" {
		dir := filepath.Join(u.opts.PodLogsDir, runtime.RefOf(pod).LogDirName())
		for _, c := range podspec.Containers(&pod.Spec) {
			f, err := safefile.FilesIn(filepath.Join(dir, c.Name), 10_000)
			if err != nil {
				continue
			}
			p.Usage.Logs.Bytes, p.Usage.Logs.Inodes = plus(p.Usage.Logs.Bytes, &f.Bytes),
				plus(p.Usage.Logs.Inodes, &f.Inodes)
			cu := u.container(p, c.Name)
			cu.Disk = plus(cu.Disk, &f.Bytes)
		}
	}
	list, err := node.VolumeStats(ctx, pod)
	if err != nil && len(list) == 0 {
		return
	}
	var none uint64
	volumes := DiskUsage{plus(nil, &none), plus(nil, &none)}
	for i := range list {
		if isLocal(pod, list[i].Name) {
			volumes.Bytes, volumes.Inodes = plus(volumes.Bytes, list[i].UsedBytes),
				plus(volumes.Inodes, list[i].InodesUsed)
		}
	}
	if ctx.Err() == nil {
		p.Usage.Volumes = volumes
	}
}

// isLocal reports whether a volume of the pod is on the disk of the node (kubelet: localVolumeNames).
func isLocal(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name == name {
			return v.HostPath != nil || v.ConfigMap != nil || v.EmptyDir != nil &&
				v.EmptyDir.Medium == v1.StorageMediumDefault
		}
	}
	return false
}
