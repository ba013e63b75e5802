package stats

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/go-logr/logr"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// disk measures the volumes and logs of pods beside the readings, since that takes as long as
// there are files. It measures a pod again after a period, if there are still requests.
type disk struct {
	opts *Options
	node lifecycle.Node
	log  logr.Logger
	// wanted has room for one token, which is there if usage was requested since the token was taken.
	wanted flow.Signal

	mu   sync.Mutex
	pods map[types.UID]*diskUsage
	// slow are the pods whose last measurement was given up after patience.
	slow map[types.UID]struct{}
	// shown is what [Collector.Disk] returns, nil if pods has changed since.
	shown []DiskUsage
}

// diskUsage is what a pod has on disk. It does not change.
type diskUsage struct {
	pod     runtime.PodRef
	at      time.Time
	volumes []statsv1alpha1.VolumeStats
	// logs are the sizes of the logs of containers by their names, in bytes.
	logs map[string]tree
	// other is the size of the files in the directory of the pod itself, which its containers can write
	// to: the hosts file and the termination messages.
	other tree
	// took is how long the measurement has taken.
	took time.Duration
}

// tree is the size of the files below a directory.
type tree struct{ bytes, inodes uint64 }

func newDisk(opts *Options) *disk {
	return &disk{opts: opts, wanted: flow.NewSignal(), pods: map[types.UID]*diskUsage{}, slow: map[types.UID]struct{}{}}
}

// A measurement of all pods pauses for 8 ms after each 2 ms, so that it leaves room for what
// matters more.
const atOnce, pause = 2 * time.Millisecond, 8 * time.Millisecond

const (
	// patience is how long the measurement of a pod may take among those of others. It is given up
	// then, and the pod is measured beside the others from then on, with others of this kind one
	// after the other.
	patience = 10 * time.Second
	// share bounds the cost of a pod with millions of files: the time between two of its measurements
	// is at least so many times as long as the last has taken.
	share = 10
)

// run measures on request until ctx ends.
func (d *disk) run(ctx context.Context, list func() []*v1.Pod) {
	var beside sync.WaitGroup
	defer beside.Wait()
	slow := make(chan []*v1.Pod) // has no room: while some are measured, others wait for the next round
	beside.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case pods := <-slow:
				for _, pod := range pods {
					d.measureSlow(ctx, pod)
				}
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wanted:
		}
		if d.opts.DiskPeriod < 0 {
			continue
		}
		select {
		case slow <- d.measureAll(ctx, list()):
		default:
		}
		if !flow.Sleep(ctx, d.opts.Period) { // pods are listed as often as usage is read
			return
		}
	}
}

// measureAll measures the pods that are due, and forgets those that are not in the list. If ctx ends,
// it leaves out the rest. It returns the pods that take long.
func (d *disk) measureAll(ctx context.Context, pods []*v1.Pod) (slow []*v1.Pod) {
	known := map[types.UID]struct{}{}
	began := time.Now()
	for _, pod := range pods {
		known[pod.UID] = struct{}{}
		if !d.due(pod.UID) {
			continue
		}
		if d.isSlow(pod.UID) || !d.measureSoon(ctx, pod) {
			slow = append(slow, pod)
		}
		if time.Since(began) < atOnce {
			continue
		}
		if !flow.Sleep(ctx, pause) {
			return nil
		}
		began = time.Now()
	}
	d.forget(known)
	return slow
}

// measureSoon measures a pod, and returns false if that takes long. Then the last measurement stays.
func (d *disk) measureSoon(ctx context.Context, pod *v1.Pod) bool {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	usage := d.measure(limited, pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	if limited.Err() != nil {
		d.slow[pod.UID] = struct{}{}
		return false
	}
	d.pods[pod.UID], d.shown = usage, nil
	return true
}

// measureSlow measures a pod however long that takes, if it is still due: it may have been measured since
// it was found to be.
func (d *disk) measureSlow(ctx context.Context, pod *v1.Pod) {
	if !d.isSlow(pod.UID) || !d.due(pod.UID) {
		return
	}
	usage := d.measure(ctx, pod)
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.slow[pod.UID]; !ok {
		return // it is gone
	}
	d.pods[pod.UID], d.shown = usage, nil
	if usage.took < patience {
		delete(d.slow, pod.UID)
	}
}

func (d *disk) isSlow(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.slow[uid]
	return ok
}

func (d *disk) due(uid types.UID) bool {
	u := d.get(uid)
	return u == nil || time.Since(u.at) >= max(d.opts.DiskPeriod, share*u.took)
}

func (d *disk) get(uid types.UID) *diskUsage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pods[uid]
}

// forget drops the pods that are not known any more.
func (d *disk) forget(known map[types.UID]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := range d.pods {
		if _, ok := known[uid]; !ok {
			delete(d.pods, uid)
			d.shown = nil
		}
	}
	maps.DeleteFunc(d.slow, func(uid types.UID, _ struct{}) bool { _, ok := known[uid]; return !ok })
}

func (d *disk) measure(ctx context.Context, pod *v1.Pod) *diskUsage {
	out := &diskUsage{pod: runtime.RefOf(pod), at: time.Now(), logs: map[string]tree{}}
	defer func() { out.took = time.Since(out.at) }()
	if !podspec.IsFileName(pod.UID) {
		return out
	}
	podDir := filepath.Join(d.opts.RootDir, "pods", string(pod.UID))
	if d.opts.RootDir != "" {
		err := runtime.Recover(func() (err error) {
			out.volumes, err = d.node.VolumeStats(ctx, pod)
			return err
		})
		if err != nil && ctx.Err() == nil {
			d.log.V(1).Info("Volumes cannot be measured", "pod", out.pod, "reason", err.Error())
		}
	}
	if d.opts.RootDir != "" {
		out.other = sizeOfFiles(podDir)
	}
	if d.opts.PodLogsDir != "" {
		dir := filepath.Join(d.opts.PodLogsDir, out.pod.LogDirName())
		for _, c := range podspec.Containers(&pod.Spec) {
			out.logs[c.Name] = sizeOfFiles(filepath.Join(dir, c.Name))
		}
	}
	return out
}

// maxFiles is the number of files that are looked at in the directory of a container's logs, and in that
// of a pod.
const maxFiles = 10_000

// sizeOfFiles returns the size of the files in a directory.
func sizeOfFiles(dir string) tree {
	f, err := safefile.FilesIn(dir, maxFiles)
	if err != nil {
		return tree{}
	}
	return tree{f.Bytes, f.Inodes}
}

// add adds what was measured of a pod to its usage.
func (d *disk) add(ps *statsv1alpha1.PodStats, pod *v1.Pod, files fileSystems, now time.Time) {
	u := d.get(pod.UID)
	if u == nil {
		return
	}
	at := metav1.NewTime(u.at)
	ps.VolumeStats = u.volumes
	var total tree
	for i := range ps.Containers {
		c := &ps.Containers[i]
		if c.Rootfs != nil {
			total.plus(c.Rootfs.UsedBytes, c.Rootfs.InodesUsed)
		}
		if logs, ok := u.logs[c.Name]; ok {
			c.Logs = files.share(&statsv1alpha1.FsStats{Time: at, UsedBytes: &logs.bytes, InodesUsed: &logs.inodes},
				d.opts.PodLogsDir, now)
		}
	}
	for _, logs := range u.logs { // also of containers that do not run
		total.plus(&logs.bytes, &logs.inodes)
	}
	total.plus(&u.other.bytes, &u.other.inodes)
	for i := range u.volumes {
		if v := &u.volumes[i]; isEphemeral(pod, v.Name) {
			total.plus(v.UsedBytes, v.InodesUsed)
		}
	}
	if d.opts.RootDir != "" {
		ps.EphemeralStorage = files.share(&statsv1alpha1.FsStats{Time: at, UsedBytes: &total.bytes,
			InodesUsed: &total.inodes}, d.opts.RootDir, now)
	}
}

func (t *tree) plus(bytes, inodes *uint64) {
	if bytes != nil {
		t.bytes = min(t.bytes+min(*bytes, maxAmount), maxAmount)
	}
	if inodes != nil {
		t.inodes = min(t.inodes+min(*inodes, maxAmount), maxAmount)
	}
}

// isEphemeral reports whether a volume of the pod takes the node's ephemeral storage (kubelet:
// IsLocalEphemeralVolume).
func isEphemeral(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
		}
	}
	return false
}

// Disk returns the last measured usage of persistent volume claims, and the sizes of the logs of
// containers, the latest measurement first. It reads nothing, and requests a measurement. A pod that
// is gone is in the result until the next measurement. The result is shared and must not be changed;
// until something is measured, it is the same slice.
func (c *Collector) Disk() []DiskUsage {
	shown := c.disk.show()
	c.disk.wanted.Notify()
	return shown
}

func (d *disk) show() []DiskUsage {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shown != nil {
		return d.shown
	}
	latest := slices.SortedFunc(maps.Values(d.pods), func(a, b *diskUsage) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	d.shown = make([]DiskUsage, 0, len(latest))
	for _, u := range latest {
		usage := DiskUsage{Pod: u.pod, Logs: make(map[string]uint64, len(u.logs))}
		for i := range u.volumes {
			if u.volumes[i].PVCRef != nil {
				usage.Claims = append(usage.Claims, u.volumes[i])
			}
		}
		for name, logs := range u.logs {
			if logs.inodes > 0 {
				usage.Logs[name] = logs.bytes
			}
		}
		d.shown = append(d.shown, usage)
	}
	return d.shown
}

// DiskUsage is what a pod has on disk.
type DiskUsage struct {
	Pod runtime.PodRef
	// Claims are the volumes of persistent volume claims. They must not be changed.
	Claims []statsv1alpha1.VolumeStats
	// Logs are the sizes of the logs of containers by their names, in bytes.
	Logs map[string]uint64
}
