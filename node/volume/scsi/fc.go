package scsi

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// FC is kubelet's name of the plugin for Fibre Channel, which is part of paths on disk.
const FC = "kubernetes.io/fc"

// lunInfix is between the names of targets and the LUN.
const lunInfix = "-lun-"

// NewFC returns the plugin for volumes of the type fc. rootDir is that of [NewISCSI]. It does no I/O.
func NewFC(rootDir string, opts Options) (*Plugin, error) {
	p, err := newPlugin(FC, rootDir, opts)
	if err != nil {
		return nil, err
	}
	p.transport = &fibre{node: p.node}
	return p, nil
}

// fibre is the transport by disks that the kernel finds and udev names.
type fibre struct{ node }

func (*fibre) inline(_ *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	if v.FC == nil {
		return nil
	}
	return inlineOf(v, v1.PersistentVolumeSource{FC: v.FC})
}

// diskOf implements transport. The key is that of kubelet (makePDNameInternal).
func (*fibre) diskOf(pv *v1.PersistentVolume) *disk {
	source := pv.Spec.FC
	if source == nil {
		return nil
	}
	d := &disk{fsType: source.FSType, readOnly: source.ReadOnly}
	if len(source.TargetWWNs) > 0 && source.Lun != nil {
		d.key = strings.Join(source.TargetWWNs, "-") + lunInfix + strconv.Itoa(int(*source.Lun))
	} else {
		d.key = strings.ReplaceAll(strings.Join(source.WWIDs, "-"), " ", "_")
	}
	return d
}

// paths returns the names of the devices of a disk with the key that udev has named, and how many there may be.
func (t *fibre) paths(key string) (names []string, most int) {
	dir, ids, end := "dev/disk/by-id", strings.Split(key, "-"), ""
	if wwns, lun, ok := strings.Cut(key, lunInfix); ok {
		dir, ids, end = "dev/disk/by-path", strings.Split(wwns, "-"), lunInfix+lun
	}
	links, _ := entriesOf(t.path(dir), "")
	for _, link := range links {
		name := filepath.Base(link)
		named := func(id string) bool {
			rest, ok := strings.CutSuffix(name, "fc-0x"+id+end)
			return ok && end != "" && (rest == "" || strings.HasPrefix(rest, "pci-") && strings.HasSuffix(rest, "-")) ||
				end == "" && name == "scsi-"+id
		}
		if !slices.ContainsFunc(ids, named) && !named(key) { // a WWID may have a hyphen
			continue
		}
		if device, err := filepath.EvalSymlinks(link); err == nil && !slices.Contains(names, filepath.Base(device)) {
			names = append(names, filepath.Base(device))
		}
	}
	return names, len(ids)
}

// attach implements transport. It has all adapters scanned if a path is missing.
func (t *fibre) attach(ctx context.Context, _ volume.PersistentRequest, stage string) (string, error) {
	names, most := t.paths(filepath.Base(stage))
	if len(names) >= most || slices.ContainsFunc(names, t.joins) {
		return t.joined(ctx, names, false)
	}
	hosts, err := entriesOf(t.path("sys/class/scsi_host"), "")
	for _, host := range hosts {
		err = errors.Join(err, t.write(ctx, "- - -", "sys/class/scsi_host", filepath.Base(host), "scan"))
	}
	reason := "no fc disk found"
	if adapters, _ := entriesOf(t.path("sys/class/fc_host"), ""); len(adapters) == 0 {
		reason += ": the node has no Fibre Channel adapter (/sys/class/fc_host)"
	}
	limited, cancel := context.WithTimeoutCause(ctx, deviceTimeout, errors.New(reason))
	defer cancel()
	for {
		if names, _ = t.paths(filepath.Base(stage)); len(names) > 0 {
			return t.joined(ctx, names, most > 1)
		}
		if !flow.Sleep(limited, interval) {
			return "", errors.Join(context.Cause(limited), err)
		}
	}
}

// joins reports whether a device has a multipath device.
func (t *fibre) joins(name string) bool { return t.mapOf(name) != "" }

// devices implements transport.
func (t *fibre) devices(stage string) []string {
	names, _ := t.paths(filepath.Base(stage))
	for _, name := range slices.Clone(names) {
		paths, _ := entriesOf(t.path("sys/block", t.mapOf(name), "slaves"), "")
		for _, path := range paths {
			if !slices.Contains(names, filepath.Base(path)) {
				names = append(names, filepath.Base(path))
			}
		}
	}
	return names
}

// detach implements transport.
func (t *fibre) detach(ctx context.Context, stage string) error {
	names := t.devices(stage)
	t.removeMaps(ctx, names)
	t.removeDevices(ctx, names)
	return ctx.Err()
}
