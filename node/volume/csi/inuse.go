package csi

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

// use declares that the node uses a volume.
func (p *Plugin) use(name v1.UniqueVolumeName) {
	p.mu.Lock()
	_, used := p.inUse[name]
	p.inUse[name] = struct{}{}
	p.mu.Unlock()
	if !used {
		p.node.NodeStatusChanged()
	}
}

// unuse declares that the node does not use the volume any more.
func (p *Plugin) unuse(name v1.UniqueVolumeName) {
	p.mu.Lock()
	_, used := p.inUse[name]
	delete(p.inUse, name)
	p.mu.Unlock()
	if used {
		p.node.NodeStatusChanged()
	}
}

// readInUse reads the volumes that an earlier agent, or a kubelet, has left in use, until it succeeds. The records do
// not say which drivers attach volumes: the CSIDriver objects do.
func (p *Plugin) readInUse(ctx context.Context) {
	for logged := false; ; logged = true {
		err := p.readInUseOnce(ctx)
		if err == nil {
			return
		}
		if !logged {
			p.node.Logger().Error(err, "Volumes of CSI drivers that are in use could not be read; the status of the node "+
				"keeps those that it has, and new volumes are not attached; trying again", "every", inUseRetry)
		}
		if !flow.Sleep(ctx, inUseRetry) {
			return
		}
	}
}

// inUseRetry is the time until the volumes in use are read again after a failure.
const inUseRetry = 10 * time.Second

func (p *Plugin) readInUseOnce(ctx context.Context) error {
	drivers := map[string]struct{}{}
	p.mu.Lock() // also while it reads: no volume goes meanwhile
	err := p.recordsBelow(func(r record) {
		p.inUse[csinode.UniqueName(r.Driver, r.Handle)] = struct{}{}
		drivers[r.Driver] = struct{}{}
	})
	p.mu.Unlock()
	if err != nil {
		return err
	}
	for name := range drivers {
		object, err := p.driverObject(ctx, name)
		if err != nil || object == nil || ptr.Deref(object.Spec.AttachRequired, true) {
			delete(drivers, name)
		}
	}
	p.unuseOf(drivers)
	p.mu.Lock()
	p.inUseRead = true
	p.mu.Unlock()
	p.node.NodeStatusChanged()
	return nil
}

// unuseOf declares that the node uses no volume of the drivers, which attach none (any more). A volume that is
// attached is detached then, though pods use it.
func (p *Plugin) unuseOf(drivers map[string]struct{}) {
	p.mu.Lock()
	before := len(p.inUse)
	maps.DeleteFunc(p.inUse, func(volume v1.UniqueVolumeName, _ struct{}) bool {
		driver, _, _ := csinode.SplitUniqueName(volume)
		_, attachesNone := drivers[driver]
		return attachesNone
	})
	changed := len(p.inUse) != before
	p.mu.Unlock()
	if changed {
		p.node.NodeStatusChanged()
	}
}

// VolumesInUse returns the volumes that the node uses, sorted: status.volumesInUse of the node object. A volume is in
// it before it is attached, until it is unstaged or the CSIDriver object does not require the attachment any more.
// known is false while those of an earlier agent have not been read.
func (p *Plugin) VolumesInUse() (volumes []v1.UniqueVolumeName, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.inUse {
		volumes = append(volumes, name)
	}
	slices.Sort(volumes)
	return volumes, p.inUseRead
}
