package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/loop"
	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// DefaultUnmountTimeout is the default of [Options].UnmountTimeout. The kernel repeats what a target does not answer
// for two minutes (node.session.timeo.replacement_timeout of open-iscsi) before it fails.
const DefaultUnmountTimeout = 3 * time.Minute

const (
	// callTimeout is the limit for a call of a program that does not mount.
	callTimeout = 2 * time.Minute
	// forceTimeout is the limit for a lazy unmount, which does not wait for the disk.
	forceTimeout = 10 * time.Second
	// deviceTimeout is how long a disk that was scanned may take to appear (kubelet: deviceDiscoveryTimeout).
	deviceTimeout = 30 * time.Second
	// mapTimeout is how long multipathd may take to join the paths of a disk (kubelet: multipathDeviceTimeout).
	mapTimeout = 10 * time.Second
	// interval is how often the files of the kernel are read while they are awaited.
	interval = 100 * time.Millisecond
	// maxMounts is how often something can be mounted at one place.
	maxMounts = 8
)

// devicesDir is the directory of a plugin for block volumes.
const devicesDir = "volumeDevices"

// keyFile is the file in the state directory of a volume with its key.
const keyFile = "disk"

// maxRecord is the limit for a file, in bytes.
const maxRecord = 1 << 20

// Options are the settings of a [Plugin]. The zero value is valid.
type Options struct {
	// Secret returns a secret for CHAP. If nil, volumes that need one fail.
	Secret func(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// UnmountTimeout is how long an unmount waits for a disk that does not answer. Default: [DefaultUnmountTimeout].
	UnmountTimeout time.Duration
	// Logger receives disks that do not answer and devices that cannot be removed. Default: none.
	Logger logr.Logger

	// run runs a program, and root has the directories /sys, /dev and /proc, for tests.
	run  mounting.Run
	root string
}

// Plugin sets up volumes of one type. Make one with [NewISCSI] or [NewFC]. It is safe for concurrent use.
type Plugin struct {
	volume.PersistentBase
	node
	transport transport
	// calls are those of programs, by the key of the volume.
	calls flow.Calls
}

var _ volume.PersistentPlugin = (*Plugin)(nil)

// transport finds disks.
type transport interface {
	// inline implements [volume.PersistentPlugin].
	inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume
	// diskOf returns the disk of a volume, and nil if the volume is of another type.
	diskOf(pv *v1.PersistentVolume) *disk
	// attach makes the disk a device of the node, unless it is one, and returns the path of that. stage is the
	// directory of the disk.
	attach(ctx context.Context, req volume.PersistentRequest, stage string) (device string, err error)
	// devices returns the names of the devices of a disk.
	devices(stage string) []string
	// detach removes the devices of a disk, which nothing uses.
	detach(ctx context.Context, stage string) error
}

// disk is the disk of a volume.
type disk struct {
	// key is the name of the directory of the disk, parent that of the directory above it, if there is one.
	key, parent string
	fsType      string
	readOnly    bool
}

func newPlugin(name, rootDir string, opts Options) (*Plugin, error) {
	if !filepath.IsAbs(rootDir) {
		return nil, fmt.Errorf("scsi: the root directory %q is not an absolute path", rootDir)
	}
	if opts.UnmountTimeout < 0 {
		return nil, fmt.Errorf("scsi: Options.UnmountTimeout is %v, which is negative", opts.UnmountTimeout)
	}
	if opts.UnmountTimeout == 0 {
		opts.UnmountTimeout = DefaultUnmountTimeout
	}
	if opts.run == nil {
		opts.run, opts.root = mounting.Program, "/"
	}
	return &Plugin{node: node{name: name, rootDir: rootDir, opts: opts}}, nil
}

// Name implements [volume.PersistentPlugin].
func (p *Plugin) Name() string { return p.name }

// Inline implements [volume.PersistentPlugin].
func (p *Plugin) Inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	return p.transport.inline(pod, v)
}

// Supports implements [volume.PersistentPlugin].
func (p *Plugin) Supports(pv *v1.PersistentVolume) bool { return p.transport.diskOf(pv) != nil }

// Key implements [volume.PersistentPlugin]. It is the name of the directory in which kubelet stages the disk.
func (p *Plugin) Key(pv *v1.PersistentVolume) string { return p.transport.diskOf(pv).key }

// Find implements [volume.PersistentPlugin].
func (p *Plugin) Find(place volume.Place) (string, error) {
	key, err := safefile.ReadFile(filepath.Join(place.StateDir, keyFile), maxRecord)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return string(key), err
	}
	// A kubelet has mounted the same for the node and for the pod, or a device for the pod.
	mounted, err := place.Mounted()
	if err != nil {
		return "", err
	}
	for _, block := range []bool{false, true} {
		stages, err := p.stages(block, "")
		if err != nil {
			return "", err
		}
		for _, stage := range stages {
			if block && exists(filepath.Join(stage, string(place.PodUID()))) ||
				!block && mounted && same(stage, place.Dir) {
				return filepath.Base(stage), nil
			}
		}
	}
	return "", nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// same reports whether the same is mounted at both paths. The kernel answers that without the disk.
func same(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// Published implements [volume.PersistentPlugin].
func (p *Plugin) Published(place volume.Place) (*volume.Published, error) {
	info, err := os.Stat(place.Device)
	if err == nil && mounting.IsBlockDevice(info.Mode()) {
		return &volume.Published{Volume: runtime.Volume{HostPath: place.Device}}, nil
	}
	ready, err := p.PersistentBase.Published(place)
	if ready != nil {
		ready.Relabel = true
	}
	return ready, err
}

// Stage implements [volume.PersistentPlugin]. It makes the disk a device of the node and mounts its file system, which
// it makes if there is nothing on the disk.
func (p *Plugin) Stage(ctx context.Context, req volume.PersistentRequest) error {
	d := p.transport.diskOf(req.Volume)
	return p.calls.Do(ctx, d.key, func(ctx context.Context) error {
		stage, err := p.stage(d, req.Block)
		if err != nil {
			return err
		}
		if err := safefile.Write(filepath.Join(req.StateDir, keyFile), []byte(d.key)); err != nil {
			return err
		}
		mounted, err := volume.Place{Dir: stage}.Mounted()
		if err != nil || mounted {
			return err
		}
		if err := os.MkdirAll(stage, 0o750); err != nil {
			return err
		}
		device, err := p.transport.attach(ctx, req, stage)
		if err != nil || req.Block {
			return err
		}
		options := mounting.Options(req.Volume.Spec.MountOptions, req.ReadOnly || d.readOnly)
		return p.opts.run.FormatAndMount(ctx, device, stage, d.fsType, options)
	})
}

// Publish implements [volume.PersistentPlugin]. It binds the file system or the device for the pod.
func (p *Plugin) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	d := p.transport.diskOf(req.Volume)
	readOnly := req.ReadOnly || d.readOnly
	out := volume.Published{Volume: runtime.Volume{HostPath: req.Dir, ReadOnly: readOnly,
		Relabel: !readOnly && !req.Block}, FSGroup: !readOnly && !req.Block}
	if req.Block {
		out.HostPath = req.Device
	}
	return out, p.calls.Do(ctx, d.key, func(ctx context.Context) error {
		stage, err := p.stage(d, req.Block)
		if err != nil {
			return err
		}
		if req.Block {
			return p.bindDevice(ctx, req, stage)
		}
		mounted, err := req.Mounted()
		if err != nil || mounted {
			return err
		}
		if err := os.MkdirAll(req.Dir, 0o750); err != nil {
			return err
		}
		return p.opts.run.Mount(ctx, stage, req.Dir, "",
			mounting.Options(req.Volume.Spec.MountOptions, readOnly, "bind"))
	})
}

// bindDevice binds the device in the directory of the disk, as kubelet does, and makes a link to it for the pod. After
// a reboot, the link leads to no device.
func (p *Plugin) bindDevice(ctx context.Context, req volume.PersistentRequest, stage string) error {
	device, err := p.transport.attach(ctx, req, stage)
	if err != nil {
		return err
	}
	bound := filepath.Join(stage, string(req.PodUID()))
	if !same(device, bound) {
		if err := loop.Release(ctx, bound); err != nil {
			return err
		}
		if err := os.WriteFile(bound, nil, 0o600); err != nil {
			return err
		}
		if err := p.opts.run.Mount(ctx, device, bound, "", []string{"bind"}); err != nil {
			return err
		}
	}
	if err := loop.Hold(ctx, device, bound); err != nil {
		return err
	}
	return req.LinkDevice(bound)
}

// remove removes a file or an empty directory, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Unpublish implements [volume.PersistentPlugin].
func (p *Plugin) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	return p.calls.Do(ctx, req.Key, func(ctx context.Context) error {
		stages, err := p.stages(true, req.Key)
		if err != nil {
			return err
		}
		for _, stage := range stages {
			if err := loop.Release(ctx, filepath.Join(stage, string(req.PodUID()))); err != nil {
				return err
			}
		}
		return remove(req.Device)
	})
}

// Unstage implements [volume.PersistentPlugin]. A disk without a path that works is unmounted lazily after the timeout,
// and removed from the node: what it has not stored is lost.
func (p *Plugin) Unstage(ctx context.Context, req volume.UnpublishRequest) error {
	return p.calls.Do(ctx, req.Key, func(ctx context.Context) error {
		for _, block := range []bool{false, true} {
			stages, err := p.stages(block, req.Key)
			if err != nil {
				return err
			}
			for _, stage := range stages {
				if err := p.unstage(ctx, stage); err != nil {
					return err
				}
			}
		}
		return remove(filepath.Join(req.StateDir, keyFile))
	})
}

func (p *Plugin) unstage(ctx context.Context, stage string) error {
	if err := p.unmount(ctx, stage); err != nil {
		return err
	}
	if err := p.transport.detach(ctx, stage); err != nil {
		return err
	}
	entries, err := os.ReadDir(stage)
	if err != nil {
		return err
	}
	for _, e := range entries { // the file of the plugin, and what a kubelet has left before a reboot
		if err := remove(filepath.Join(stage, e.Name())); err != nil {
			return err
		}
	}
	if err := remove(stage); err != nil {
		return err
	}
	if parent := filepath.Dir(stage); parent != p.dir(false) && parent != p.dir(true) {
		_ = os.Remove(parent) // if it is empty
	}
	return nil
}

// unmount unmounts the file system of a disk, and waits until everything is stored.
func (p *Plugin) unmount(ctx context.Context, stage string) error {
	place := volume.Place{Dir: stage}
	limited, cancel := context.WithTimeout(ctx, p.opts.UnmountTimeout)
	defer cancel()
	for range maxMounts {
		mounted, err := place.Mounted()
		if err == nil && mounted {
			err = p.opts.run.Unmount(limited, stage)
		}
		if ctx.Err() != nil || err != nil && limited.Err() == nil {
			return err
		}
		if err != nil || !mounted {
			break
		}
	}
	names := p.transport.devices(stage)
	for _, name := range names {
		// It also waits for an unmount that was under way when the agent ended. A device that has gone stores nothing.
		_, _ = p.opts.run(limited, "blockdev", "--flushbufs", p.path("dev", cmp.Or(p.mapOf(name), name)))
	}
	if ctx.Err() != nil || limited.Err() == nil {
		return context.Cause(ctx)
	}
	answers := func(name string) bool { return p.read("sys/block", name, "device/state") == "running" }
	if slices.ContainsFunc(names, answers) {
		return fmt.Errorf("the disk answers, but has not stored everything after %v", p.opts.UnmountTimeout)
	}
	p.opts.Logger.Info("A disk does not answer; its volume is unmounted lazily", "path", stage)
	forced, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	err := p.opts.run.Unmount(forced, stage, "-l")
	if mounted, look := place.Mounted(); look == nil && !mounted {
		return nil // it was unmounted, and only did not end
	}
	return err
}

// inlineOf returns a persistent volume for a volume in the spec of a pod.
func inlineOf(v *v1.Volume, source v1.PersistentVolumeSource) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.PersistentVolumeSource = v.Name, source
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeFilesystem)
	return pv
}
