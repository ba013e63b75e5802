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

	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// drivers are the registered drivers. What they report is published by run.
type drivers struct {
	plugin *Plugin

	mu     sync.Mutex
	byName map[string]*driver
	// reported has what is to be published of each driver, nil for a driver that is to be removed. An entry is removed
	// when that is done.
	reported map[string]*NodeDriver
	// wake has a token while something is to be published.
	wake chan struct{}
}

func newDrivers(p *Plugin) *drivers {
	return &drivers{plugin: p, byName: map[string]*driver{}, reported: map[string]*NodeDriver{},
		wake: make(chan struct{}, 1)}
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

// Register implements [plugins.Handler]. It asks the driver for what it reports of the node. That is published in the
// cluster after it, so that a driver can be used while the API server is away; if the cluster refuses it, Register
// fails.
func (p *Plugin) Register(ctx context.Context, of plugins.Plugin) error {
	if err := p.Validate(of); err != nil {
		return err
	}
	d, err := p.connect(of)
	if err != nil {
		return err
	}
	reported, err := p.info(ctx, d)
	if err == nil {
		if err = p.cluster.Install(ctx, *reported); err != nil && !errors.Is(err, ErrRefused) {
			err = nil // run tries again
		} else if err == nil {
			reported = nil
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("CSI driver %s: %w", of.Name, err), d.conn.Close())
	}
	p.drivers.mu.Lock()
	earlier := p.drivers.byName[of.Name]
	p.drivers.byName[of.Name] = d
	delete(p.drivers.reported, of.Name)
	p.drivers.mu.Unlock()
	if reported != nil {
		p.drivers.report(of.Name, reported)
	}
	if earlier != nil {
		_ = earlier.conn.Close()
	}
	p.registered(of.Name)
	return nil
}

// info asks a driver for what it reports of the node.
func (p *Plugin) info(ctx context.Context, d *driver) (*NodeDriver, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := d.node.NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("its report of the node: %w", err)
	}
	if r.GetNodeId() == "" {
		return nil, errors.New("its report of the node has no node ID")
	}
	return &NodeDriver{Name: d.Name, NodeID: r.GetNodeId(), MaxVolumes: r.GetMaxVolumesPerNode(),
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
	p.drivers.mu.Unlock()
	_ = d.conn.Close()
	p.drivers.report(of.Name, nil)
}

// report has a driver published, or removed if there is nothing to publish.
func (d *drivers) report(name string, r *NodeDriver) {
	d.mu.Lock()
	d.reported[name] = r
	d.mu.Unlock()
	d.notify()
}

// notify wakes run.
func (d *drivers) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// The back-off of attempts to publish is kubelet's for its first attempts; it ends with one that an API server can bear
// that was away.
const (
	minPublish = 100 * time.Millisecond
	maxPublish = 10 * time.Second
	// allocatableCheck is how often the CSIDriver objects are read, whose periods are 10 s at least
	// (NodeAllocatableUpdatePeriodSeconds).
	allocatableCheck = 10 * time.Second
	// republishPeriod is kubelet's default of syncFrequency, with which it publishes such volumes again.
	republishPeriod = time.Minute
)

// run publishes what the drivers report until ctx ends, and closes the connections then.
func (d *drivers) run(ctx context.Context) error {
	defer d.close()
	var retry, update, republish <-chan time.Time
	wait, asked := minPublish, map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-retry:
		case <-update:
			update = nil
			d.update(ctx, asked)
		case <-republish:
			republish = nil
			d.plugin.republishAll()
		}
		if retry = nil; d.publish(ctx) {
			wait = minPublish
		} else {
			retry, wait = time.After(wait), min(2*wait, maxPublish)
		}
		if update == nil && d.any() {
			update = time.After(allocatableCheck)
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

// publish publishes all that is to be, and reports whether it has succeeded.
func (d *drivers) publish(ctx context.Context) bool {
	d.mu.Lock()
	todo := make(map[string]*NodeDriver, len(d.reported))
	for name, r := range d.reported {
		todo[name] = r
	}
	d.mu.Unlock()
	all := true
	for name, r := range todo {
		var err error
		if r != nil {
			err = d.plugin.cluster.Install(ctx, *r)
		} else {
			err = d.plugin.cluster.Uninstall(ctx, name)
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			d.plugin.node.Logger().V(1).Info("A CSI driver could not be published in the cluster; trying again",
				"driver", name, "reason", err.Error())
			all = false
			continue
		}
		if err != nil {
			d.plugin.node.Logger().Error(err, "What a CSI driver reports of the node is refused", "driver", name)
		}
		d.mu.Lock()
		if d.reported[name] == r {
			delete(d.reported, name)
		}
		d.mu.Unlock()
	}
	return all
}

// update asks the drivers again how many volumes the node can have whose CSIDriver objects request that
// (MutableCSINodeAllocatableCount).
func (d *drivers) update(ctx context.Context, asked map[string]time.Time) {
	d.mu.Lock()
	list := make([]*driver, 0, len(d.byName))
	for _, of := range d.byName {
		list = append(list, of)
	}
	d.mu.Unlock()
	for _, of := range list {
		object, err := d.plugin.driverObject(ctx, of.Name)
		if err != nil || object == nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
			delete(asked, of.Name)
			continue
		}
		period := time.Duration(ptr.Deref(object.Spec.NodeAllocatableUpdatePeriodSeconds, 0)) * time.Second
		last, ok := asked[of.Name]
		if ok && time.Since(last) < period {
			continue
		}
		if asked[of.Name] = time.Now(); ok {
			d.ask(ctx, of)
		}
	}
}

// ask asks a driver, and has its answer published.
func (d *drivers) ask(ctx context.Context, of *driver) {
	r, err := d.plugin.info(ctx, of)
	if err != nil {
		d.plugin.node.Logger().Error(err, "A CSI driver does not report how many volumes the node can have", "driver",
			of.Name)
		return
	}
	d.report(of.Name, r)
}

func (d *drivers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, of := range d.byName {
		_ = of.conn.Close()
		delete(d.byName, name)
	}
}
