package csi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

// drivers are the registered drivers.
type drivers struct {
	plugin *Plugin

	mu     sync.Mutex
	byName map[string]*driver
	// removed are the drivers that are to be removed from the cluster, unless they are registered again.
	removed map[string]struct{}
	// exhausted are the drivers that are asked again how many volumes the node can have, since it has too many.
	exhausted map[string]struct{}
	// publishing has a lock for each driver while it is installed in the cluster or removed, so that the cluster has
	// the last state of it.
	publishing flow.Locks
	// closed means that run has returned: no driver is registered any more.
	closed bool
	// wake holds a token while run has something to do.
	wake flow.Signal
}

func newDrivers(p *Plugin) *drivers {
	return &drivers{plugin: p, byName: map[string]*driver{}, removed: map[string]struct{}{},
		exhausted: map[string]struct{}{}, wake: flow.NewSignal()}
}

// get returns a registered driver.
func (d *drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if of := d.byName[name]; of != nil {
		return of, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// highest returns the highest version of a list that is supported: 1.x (kubelet: HighestSupportedVersion).
func highest(versions []string) (*version.Version, error) {
	var best *version.Version
	for _, text := range versions {
		v, err := version.ParseGeneric(text)
		if err != nil || v.Major() != 1 {
			continue
		}
		if best == nil || best.LessThan(v) {
			best = v
		}
	}
	if best == nil {
		return nil, fmt.Errorf("none of the versions %q is supported: 1.x is", versions)
	}
	return best, nil
}

// Validate implements [plugins.Handler].
func (p *Plugin) Validate(of plugins.Plugin) error {
	v, err := highest(of.Versions)
	if err != nil {
		return fmt.Errorf("CSI driver %s at endpoint %s: %w", of.Name, of.Endpoint, err)
	}
	p.drivers.mu.Lock()
	defer p.drivers.mu.Unlock()
	if there := p.drivers.byName[of.Name]; there != nil {
		if has, err := highest(there.Versions); err == nil && !has.LessThan(v) {
			return fmt.Errorf("CSI driver %s at endpoint %s: another driver with the same name is registered at %s, with "+
				"the version %s", of.Name, of.Endpoint, there.Endpoint, has)
		}
	}
	return nil
}

// Register implements [plugins.Handler]. It asks the driver for what it reports of the node, and publishes that. While
// the API server is away the driver can be used.
func (p *Plugin) Register(ctx context.Context, of plugins.Plugin) error {
	if err := p.Validate(of); err != nil {
		return err
	}
	d, err := p.connect(of)
	if err != nil {
		return err
	}
	if err := p.add(ctx, d); err != nil {
		return errors.Join(fmt.Errorf("CSI driver %s: %w", of.Name, err), d.conn.Close())
	}
	p.drivers.wake.Notify()
	p.registered(of.Name)
	return nil
}

// add publishes a driver and adds it to those that are registered.
func (p *Plugin) add(ctx context.Context, d *driver) error {
	report, err := p.report(ctx, d)
	if err != nil {
		return err
	}
	unlock, err := p.drivers.publishing.Lock(ctx, d.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.cluster.Install(ctx, report); err != nil {
		return err
	}
	p.drivers.mu.Lock()
	earlier, closed := p.drivers.byName[d.Name], p.drivers.closed
	if !closed {
		p.drivers.byName[d.Name] = d
	}
	p.drivers.mu.Unlock()
	if closed {
		return errors.New("the agent ends")
	}
	if earlier != nil {
		_ = earlier.conn.Close()
	}
	return nil
}

// report asks a driver for what it reports of the node.
func (p *Plugin) report(ctx context.Context, d *driver) (report csinode.Driver, err error) {
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := d.node.NodeGetInfo(call, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return report, fmt.Errorf("its report of the node: %w", err)
	}
	if r.GetNodeId() == "" {
		return report, errors.New("its report of the node has no node ID")
	}
	return csinode.Driver{Name: d.Name, NodeID: r.GetNodeId(), MaxVolumes: r.GetMaxVolumesPerNode(),
		Topology: r.GetAccessibleTopology().GetSegments()}, nil
}

// Deregister implements [plugins.Handler].
func (p *Plugin) Deregister(of plugins.Plugin) {
	p.drivers.mu.Lock()
	d := p.drivers.byName[of.Name]
	if d == nil || d.Socket != of.Socket {
		p.drivers.mu.Unlock()
		return
	}
	delete(p.drivers.byName, of.Name)
	p.drivers.removed[of.Name] = struct{}{}
	p.drivers.mu.Unlock()
	_ = d.conn.Close()
	p.drivers.wake.Notify()
}

const (
	// objectsCheck is how often the CSIDriver objects are read, whose periods are 10 s at least
	// (NodeAllocatableUpdatePeriodSeconds).
	objectsCheck = 10 * time.Second
	// updateTimeout is the limit for such an update.
	updateTimeout = 10 * time.Second
	// republishPeriod is kubelet's default of syncFrequency, with which it publishes such volumes again.
	republishPeriod = time.Minute
)

// run keeps what is published up to date until ctx ends, and closes the connections then.
func (d *drivers) run(ctx context.Context) error {
	defer d.close()
	var update, republish <-chan time.Time
	asked := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			d.uninstall(ctx)
			d.updateExhausted(ctx)
		case <-update:
			update = nil
			d.update(ctx, asked)
		case <-republish:
			republish = nil
			d.plugin.republishAll()
		}
		if update == nil && d.any() {
			update = time.After(objectsCheck)
		}
		if republish == nil && d.plugin.republishes() {
			republish = time.After(republishPeriod)
		}
	}
}

func (d *drivers) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.byName) > 0
}

// uninstall removes the drivers from the cluster that are not registered any more.
func (d *drivers) uninstall(ctx context.Context) {
	d.mu.Lock()
	removed := d.removed
	d.removed = map[string]struct{}{}
	d.mu.Unlock()
	for name := range removed {
		if err := d.uninstallOne(ctx, name); err != nil {
			d.plugin.node.Logger().Error(err, "A CSI driver that has gone could not be removed from the CSINode object",
				"driver", name)
		}
	}
}

// uninstallOne removes a driver, unless it is registered again.
func (d *drivers) uninstallOne(ctx context.Context, name string) error {
	unlock, err := d.publishing.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := d.get(name); err == nil {
		return nil
	}
	return d.plugin.cluster.Uninstall(ctx, name)
}

// exceeded has a driver asked again how many volumes the node can have.
func (d *drivers) exceeded(name string) {
	d.mu.Lock()
	d.exhausted[name] = struct{}{}
	d.mu.Unlock()
	d.wake.Notify()
}

// updateExhausted asks the drivers again of which the node has too many volumes.
func (d *drivers) updateExhausted(ctx context.Context) {
	d.mu.Lock()
	exhausted := d.exhausted
	d.exhausted = map[string]struct{}{}
	d.mu.Unlock()
	for name := range exhausted {
		if of, err := d.get(name); err == nil {
			d.updateOne(ctx, of)
		}
	}
}

// updateOne publishes again what a driver reports, unless another one has been registered meanwhile.
func (d *drivers) updateOne(ctx context.Context, of *driver) {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout) // other drivers wait for it
	defer cancel()
	report, err := d.plugin.report(ctx, of)
	if err == nil {
		err = d.reinstall(ctx, of, report)
	}
	if now, _ := d.get(of.Name); err != nil && now == of {
		d.plugin.node.Logger().Error(err, "How many volumes the node can have could not be updated", "driver", of.Name)
	}
}

func (d *drivers) reinstall(ctx context.Context, of *driver, report csinode.Driver) error {
	unlock, err := d.publishing.Lock(ctx, of.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if now, _ := d.get(of.Name); now != of {
		return nil
	}
	return d.plugin.cluster.Install(ctx, report)
}

// update acts on changes of the CSIDriver objects: a driver that does not require attachments any more has no volumes
// in use, and the drivers whose objects request that are asked again how many volumes the node can have
// (MutableCSINodeAllocatableCount). asked has when each was asked.
func (d *drivers) update(ctx context.Context, asked map[string]time.Time) {
	d.mu.Lock()
	list := make([]*driver, 0, len(d.byName))
	for _, of := range d.byName {
		list = append(list, of)
	}
	d.mu.Unlock()
	for _, of := range list {
		object, err := d.plugin.driverObject(ctx, of.Name)
		if err == nil && object != nil && !ptr.Deref(object.Spec.AttachRequired, true) {
			d.plugin.unuseOf(map[string]struct{}{of.Name: {}})
		}
		if err != nil || object == nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
			delete(asked, of.Name)
			continue
		}
		period := time.Duration(ptr.Deref(object.Spec.NodeAllocatableUpdatePeriodSeconds, 0)) * time.Second
		last, ok := asked[of.Name]
		if ok && time.Since(last) < period {
			continue
		}
		if asked[of.Name] = time.Now(); !ok {
			continue // it was asked when it was registered
		}
		d.updateOne(ctx, of)
	}
}

func (d *drivers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for name, of := range d.byName {
		_ = of.conn.Close()
		delete(d.byName, name)
	}
}
