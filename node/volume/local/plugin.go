package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/loop"
	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Name is kubelet's name of the plugin, which is part of paths on disk.
const Name = "kubernetes.io/local-volume"

// Options are the settings of [New]. The zero value is valid.
type Options struct {
	// run runs a program, and isDevice reports whether there is a block device at a path, for tests.
	run      mounting.Run
	isDevice func(path string) (bool, error)
}

// Plugin sets up persistent volumes of the type local on block devices. Make one with [New]. It is safe for concurrent
// use.
type Plugin struct {
	volume.PersistentBase
	rootDir string
	opts    Options
	// calls are those of programs, by the name of the volume.
	calls flow.Calls
}

var _ volume.PersistentPlugin = (*Plugin)(nil)

// New returns the plugin. rootDir is the root directory of the agent, an absolute path, below which are its pods and,
// in plugins, what is mounted for the node. It does no I/O.
func New(rootDir string, opts Options) (*Plugin, error) {
	if !filepath.IsAbs(rootDir) {
		return nil, fmt.Errorf("local: the root directory %q is not an absolute path", rootDir)
	}
	if opts.run == nil {
		opts.run = mounting.Program
	}
	if opts.isDevice == nil {
		opts.isDevice = isDevice
	}
	return &Plugin{rootDir: rootDir, opts: opts}, nil
}

// isDevice reports whether there is a block device at the path, or a link to one.
func isDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return mounting.IsBlockDevice(info.Mode()), nil
}

// Name implements [volume.PersistentPlugin].
func (*Plugin) Name() string { return Name }

// Supports implements [volume.PersistentPlugin]. It reports whether the volume is of the type local, and its path is a
// block device now, or it is used as one.
func (p *Plugin) Supports(pv *v1.PersistentVolume) bool {
	if pv.Spec.Local == nil {
		return false
	}
	if ptr.Deref(pv.Spec.VolumeMode, v1.PersistentVolumeFilesystem) == v1.PersistentVolumeBlock {
		return true
	}
	is, err := p.opts.isDevice(pv.Spec.Local.Path)
	return err == nil && is
}

// stage is where the file system of a volume is mounted for the node.
func (p *Plugin) stage(name string) string {
	return filepath.Join(p.rootDir, "plugins", Name, "mounts", name)
}

// held is where the device of a volume is held open for the pod, as in kubelet.
func (p *Plugin) held(place volume.Place) string {
	return filepath.Join(p.rootDir, "plugins", "kubernetes.io~local-volume", "volumeDevices", filepath.Base(place.Dir),
		string(place.PodUID()))
}

// Published implements [volume.PersistentPlugin].
func (p *Plugin) Published(place volume.Place) (*volume.Published, error) {
	if _, err := os.Stat(place.Device); err == nil {
		return &volume.Published{Volume: runtime.Volume{HostPath: place.Device}}, nil
	}
	ready, err := p.PersistentBase.Published(place)
	if ready != nil {
		ready.Relabel = true
	}
	return ready, err
}

// Stage implements [volume.PersistentPlugin]. It mounts the file system of the device, which it makes if there is
// nothing on the device.
func (p *Plugin) Stage(ctx context.Context, req volume.PersistentRequest) error {
	return p.calls.Do(ctx, req.Volume.Name, func(ctx context.Context) error {
		path := req.Volume.Spec.Local.Path
		switch is, err := p.opts.isDevice(path); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("path %q does not exist", path)
		case err != nil:
			return err
		case !is:
			return fmt.Errorf("path %q is no block device", path)
		case req.Block:
			return nil
		}
		return p.mount(ctx, req)
	})
}

func (p *Plugin) mount(ctx context.Context, req volume.PersistentRequest) error {
	stage, local := p.stage(req.Volume.Name), req.Volume.Spec.Local
	mounted, err := volume.Place{Dir: stage}.Mounted()
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(stage, 0o750); err != nil {
		return err
	}
	fsType := ptr.Deref(local.FSType, mounting.DefaultType)
	options := mounting.Options(req.Volume.Spec.MountOptions, req.ReadOnly)
	err = p.opts.run.FormatAndMount(ctx, local.Path, stage, fsType, options)
	if err == nil {
		return nil
	}
	_ = os.Remove(stage) // which Unstage removes at the latest
	return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", local.Path, stage, fsType, err)
}

// Publish implements [volume.PersistentPlugin]. It binds the file system for the pod, or links the device.
func (p *Plugin) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	out := volume.Published{Volume: runtime.Volume{HostPath: req.Dir, ReadOnly: req.ReadOnly, Relabel: !req.ReadOnly}}
	if req.Block {
		out.HostPath, out.Relabel = req.Device, false
		if err := req.LinkDevice(req.Volume.Spec.Local.Path); err != nil {
			return out, err
		}
		return out, p.calls.Do(ctx, req.Volume.Name, func(ctx context.Context) error {
			return loop.Hold(ctx, req.Volume.Spec.Local.Path, p.held(req.Place))
		})
	}
	err := p.calls.Do(ctx, req.Volume.Name, func(ctx context.Context) error { return p.bind(ctx, req) })
	out.FSGroup = !req.ReadOnly && !req.Shared // the files stay those of the pod that had the volume first
	return out, err
}

func (p *Plugin) bind(ctx context.Context, req volume.PersistentRequest) error {
	mounted, err := req.Mounted()
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(req.Dir, 0o750); err != nil {
		return err
	}
	options := mounting.Options(req.Volume.Spec.MountOptions, req.ReadOnly, "bind")
	if err := p.opts.run.Mount(ctx, p.stage(req.Volume.Name), req.Dir, "", options); err != nil {
		_ = os.Remove(req.Dir) // which the manager removes at the latest
		return err
	}
	return nil
}

// Unpublish implements [volume.PersistentPlugin].
func (p *Plugin) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	held := p.held(req.Place)
	if err := loop.Release(ctx, held); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(held)) // unless another pod has the device
	if err := os.Remove(req.Device); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Unstage implements [volume.PersistentPlugin].
func (p *Plugin) Unstage(ctx context.Context, req volume.UnpublishRequest) error {
	stage := volume.Place{Dir: p.stage(req.Key)}
	return p.calls.Do(ctx, req.Key, func(context.Context) error {
		if err := stage.Unmount(); err != nil {
			return err
		}
		if err := os.Remove(stage.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// Expand implements [volume.PersistentPlugin]. It makes the file system as large as the device. A device is as large as
// it is.
func (p *Plugin) Expand(ctx context.Context, req volume.PersistentRequest) error {
	if req.Block {
		return volume.ErrUnsupported
	}
	return p.calls.Do(ctx, req.Volume.Name, func(ctx context.Context) error {
		return p.opts.run.Grow(ctx, req.Volume.Spec.Local.Path, p.stage(req.Volume.Name))
	})
}
