package csi

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// usageAge is for how long the usage of a volume counts for all its pods: less than the minute after which a pod is
// measured again.
const usageAge = 30 * time.Second

// Stats implements [volume.PersistentPlugin]. It asks the driver, if that reports usage, once for all pods of a volume.
func (p *Plugin) Stats(ctx context.Context, place volume.Place) (stats statsv1alpha1.FsStats, err error) {
	r, err := p.read(place)
	if err != nil {
		return stats, err
	}
	if r.Driver == "" {
		return stats, fs.ErrNotExist
	}
	key := r.key()
	p.mu.Lock()
	known, ok := p.usage[key]
	p.mu.Unlock()
	if ok && time.Since(known.Time.Time) < usageAge {
		return known, nil
	}
	if stats, err = p.ask(ctx, r, place); err != nil {
		return stats, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, err := p.read(place); err == nil && now.Driver != "" { // else nothing would remove the entry
		p.usage[key] = stats
	}
	return stats, nil
}

// ask asks a driver for the usage of a volume.
func (p *Plugin) ask(ctx context.Context, r record, place volume.Place) (stats statsv1alpha1.FsStats, err error) {
	d, err := p.drivers.get(r.Driver)
	if err != nil {
		return stats, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	can, err := d.capabilities(ctx)
	if err != nil {
		return stats, err
	}
	if !can.stats {
		return stats, volume.ErrUnsupported
	}
	answer, err := d.node.NodeGetVolumeStats(ctx, &csipb.NodeGetVolumeStatsRequest{VolumeId: r.Handle,
		VolumePath: p.targetPath(place, r.block)})
	if err != nil {
		return stats, fmt.Errorf("CSI driver %s: usage of volume %s: %w", r.Driver, r.Handle, err)
	}
	if len(answer.GetUsage()) == 0 {
		return stats, fmt.Errorf("CSI driver %s: usage of volume %s: the answer is empty", r.Driver, r.Handle)
	}
	stats.Time = metav1.Now()
	for _, u := range answer.GetUsage() {
		available, total, used := size(u.GetAvailable()), size(u.GetTotal()), size(u.GetUsed())
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			stats.AvailableBytes, stats.CapacityBytes, stats.UsedBytes = available, total, used
		case csipb.VolumeUsage_INODES:
			stats.InodesFree, stats.Inodes, stats.InodesUsed = available, total, used
		}
	}
	return stats, nil
}

func size(n int64) *uint64 { return new(uint64(max(n, 0))) }
