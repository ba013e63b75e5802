package csi

import (
	"slices"

	v1 "k8s.io/api/core/v1"
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

// readInUse reads the volumes that an earlier agent, or a kubelet, has left in use.
func (p *Plugin) readInUse() {
	p.mu.Lock() // also while it reads: no volume goes meanwhile
	err := p.recordsBelow(func(r record) { p.inUse[UniqueName(r.Driver, r.Handle)] = struct{}{} })
	p.inUseRead = err == nil
	p.mu.Unlock()
	if err != nil {
		p.node.Logger().Error(err, "Volumes of CSI drivers that are in use could not be read; "+
			"the status of the node keeps those that it has until the next start")
		return
	}
	p.node.NodeStatusChanged()
}

// VolumesInUse returns the volumes that the node uses, sorted: status.volumesInUse of the node object. A volume is in it
// before it is attached, until it is unstaged. known is false while those of an earlier agent have not been read.
func (p *Plugin) VolumesInUse() (volumes []v1.UniqueVolumeName, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.inUse {
		volumes = append(volumes, name)
	}
	slices.Sort(volumes)
	return volumes, p.inUseRead
}
