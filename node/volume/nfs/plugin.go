package nfs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Name is kubelet's name of the plugin, which is part of paths on disk.
const Name = "kubernetes.io/nfs"

// DefaultUnmountTimeout is the default of [Options].UnmountTimeout (kubelet: unMountTimeout).
const DefaultUnmountTimeout = time.Minute

const (
	// forceTimeout is the limit for an unmount by force, which does not wait for the server.
	forceTimeout = 10 * time.Second
	// statsTimeout is the limit for the usage of a volume.
	statsTimeout = 5 * time.Second
	// maxMounts is how often something can be mounted at one place.
	maxMounts = 8
)

// Options are the settings of [New]. The zero value is valid.
type Options struct {
	// UnmountTimeout is how long umount waits for a server, until the volume is unmounted by force. Default:
	// [DefaultUnmountTimeout].
	UnmountTimeout time.Duration
	// Logger receives unmounts by force. Default: none.
	Logger logr.Logger

	// run runs a program, has reports whether there is one, and size measures a file system, for tests.
	run  mounting.Run
	has  func(program string) bool
	size func(dir string) (safefile.Disk, error)
}

// Plugin sets up volumes of NFS servers. Make one with [New]. It is safe for concurrent use.
type Plugin struct {
	volume.PersistentBase
	opts Options
	// mounts are the calls of mount and umount by place, stats the measurements.
	mounts, stats flow.Calls
}

var _ volume.PersistentPlugin = (*Plugin)(nil)

// New returns the plugin. It does no I/O. It fails if a timeout is negative.
func New(opts Options) (*Plugin, error) {
	if opts.UnmountTimeout < 0 {
		return nil, fmt.Errorf("nfs: Options.UnmountTimeout is %v, which is negative", opts.UnmountTimeout)
	}
	if opts.UnmountTimeout == 0 {
		opts.UnmountTimeout = DefaultUnmountTimeout
	}
	if opts.run == nil {
		opts.run, opts.has, opts.size = mounting.Program, mounting.Has, safefile.DiskSize
	}
	return &Plugin{opts: opts}, nil
}

// Name implements [volume.PersistentPlugin].
func (*Plugin) Name() string { return Name }

// PerPod implements [volume.PersistentPlugin]. It returns true.
func (*Plugin) PerPod() bool { return true }

// Supports implements [volume.PersistentPlugin].
func (*Plugin) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.NFS != nil }

// Inline implements [volume.PersistentPlugin].
func (*Plugin) Inline(_ *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	if v.NFS == nil {
		return nil
	}
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.NFS = v.Name, v.NFS
	return pv
}

// Publish implements [volume.PersistentPlugin]. It mounts the volume, unless it is mounted.
func (p *Plugin) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	if req.Block {
		return volume.Published{}, fmt.Errorf("%w: a volume of an NFS server is no device", volume.ErrUnsupported)
	}
	source := req.Volume.Spec.NFS
	readOnly := req.ReadOnly || source.ReadOnly
	out := volume.Published{Volume: runtime.Volume{HostPath: req.Dir, ReadOnly: readOnly}}
	options := mounting.Options(req.Volume.Spec.MountOptions, readOnly)
	return out, p.mounts.Do(ctx, req.Dir, func(ctx context.Context) error {
		return p.mount(ctx, server(source.Server)+":"+source.Path, req.Place, options)
	})
}

// server returns the server in the source of a mount.
func server(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
		return "[" + name + "]"
	}
	return name
}

func (p *Plugin) mount(ctx context.Context, source string, place volume.Place, options []string) error {
	mounted, err := place.Mounted()
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(place.Dir, 0o750); err != nil {
		return err
	}
	failed := p.opts.run.Mount(ctx, source, place.Dir, "nfs", options)
	switch mounted, err = place.Mounted(); {
	case err == nil && mounted: // else mount has only failed to note that
		return nil
	case failed == nil && err == nil:
		failed = errors.New("mount has succeeded, but nothing is mounted: the mount option bg is not supported")
	case failed != nil && ctx.Err() == nil && !p.opts.has("mount.nfs"):
		failed = fmt.Errorf("%w\nThe program mount.nfs is missing: install the package nfs-common (Debian, Ubuntu), "+
			"nfs-utils (Fedora, Red Hat, Alpine) or nfs-client (SUSE)", failed)
	}
	_ = os.Remove(place.Dir) // it is removed at the end of the pod at the latest
	return errors.Join(failed, err)
}

// Unpublish implements [volume.PersistentPlugin]. It waits for the server up to the timeout, and then unmounts the
// volume by force.
func (p *Plugin) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	return p.mounts.Do(ctx, req.Dir, func(ctx context.Context) error {
		for range maxMounts {
			mounted, err := req.Mounted()
			if err != nil || !mounted {
				return err
			}
			if err := p.unmount(ctx, req.Place); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s: something keeps being mounted there", req.Dir)
	})
}

func (p *Plugin) unmount(ctx context.Context, place volume.Place) error {
	limited, cancel := context.WithTimeout(ctx, p.opts.UnmountTimeout)
	defer cancel()
	failed := p.opts.run.Unmount(limited, place.Dir)
	if failed == nil || ctx.Err() != nil {
		return failed
	}
	if mounted, err := place.Mounted(); err != nil || !mounted {
		return err
	}
	// The volume may be busy since calls wait for a server that does not answer.
	answered := p.stats.Do(limited, place.Dir, func(context.Context) error {
		_, err := p.opts.size(place.Dir)
		return err
	})
	if ctx.Err() != nil || answered == nil || limited.Err() == nil {
		return failed
	}
	p.opts.Logger.Info("An NFS server does not answer; its volume is unmounted by force", "path", place.Dir)
	forced, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	err := p.opts.run.Unmount(forced, place.Dir, "-f", "-l")
	if mounted, look := place.Mounted(); look == nil && !mounted {
		return nil // the program may wait for what containers have written
	}
	return err
}

// Stats implements [volume.PersistentPlugin]. It fails if the server does not answer within seconds.
func (p *Plugin) Stats(ctx context.Context, place volume.Place) (stats statsv1alpha1.FsStats, err error) {
	mounted, err := place.Mounted()
	if err != nil {
		return stats, err
	}
	if !mounted {
		return stats, os.ErrNotExist
	}
	if p.stats.UnderWay(place.Dir) {
		return stats, errors.New("the NFS server does not answer")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, statsTimeout, errors.New("the NFS server does not answer"))
	defer cancel()
	sizes := make(chan safefile.Disk, 1) // of one, so that a call that stays behind ends
	err = p.stats.Do(ctx, place.Dir, func(context.Context) error {
		size, err := p.opts.size(place.Dir)
		sizes <- size
		return err
	})
	if err != nil {
		return stats, fmt.Errorf("measuring %s: %w", place.Dir, err)
	}
	size := <-sizes
	used := size.InodesUsed()
	return statsv1alpha1.FsStats{Time: metav1.NewTime(time.Now()), CapacityBytes: &size.Capacity,
		AvailableBytes: &size.Available, UsedBytes: &size.Used, Inodes: &size.Inodes, InodesFree: &size.InodesFree,
		InodesUsed: &used}, nil
}
