package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// server is a provider that is served.
type server struct {
	Provider
	// list is the last one that it has delivered; nil before the first one.
	list *inventory
}

// CheckResource returns an error unless pods can request the resource as an extended resource.
func CheckResource(name v1.ResourceName) error {
	if !podspec.IsExtendedResource(name) {
		return fmt.Errorf("%q is no name of an extended resource, such as example.com/device", name)
	}
	if problems := validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix + string(name)); len(problems) > 0 {
		return fmt.Errorf("%q is no name of a resource: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// Serve offers the devices of the provider until its Watch returns or ctx ends. Then its devices are not given any
// more, containers that have some keep them, and the capacity of the node has them for [LostGrace].
//
// A provider that is served later takes the place of an earlier one of the same resource when it has delivered its
// devices. When it ends, the earlier one takes its place again, with the last list that it has delivered: so two
// versions of a provider can run beside each other while one replaces the other.
func (m *Manager) Serve(ctx context.Context, p Provider) error {
	name := p.Resource()
	if err := CheckResource(name); err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	own := &server{Provider: p}
	m.lock()
	pool := m.pool(name)
	pool.servers = append(pool.servers, own)
	m.mu.Unlock()
	defer m.ended(pool, own)
	err := runtime.Recover(func() error { return p.Watch(ctx, func(list []Device) { m.update(pool, own, list) }) })
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// update makes the devices of the server those of its resource, unless a later one has delivered some.
func (m *Manager) update(pool *pool, own *server, list []Device) {
	now := newInventory(list, m.opts.Nodes)
	m.mu.Lock()
	own.list = &now
	place := slices.Index(pool.servers, own)
	if place < 0 || place < slices.Index(pool.servers, pool.server) {
		m.mu.Unlock()
		return
	}
	first := pool.devices == nil
	affected, waited, counted := pool.elect()
	if first {
		m.held.Changed() // the resource is in the checkpoint, so that pods wait for it after a reboot
	}
	m.mu.Unlock()
	if now.bad > 0 {
		m.log.Info("A provider has delivered devices whose IDs are empty, longer than 1 KiB, no text, or "+
			"not unique; of each ID one device is used",
			"resource", own.Resource(), "count", now.bad)
	}
	if first {
		m.held.SaveLater()
	}
	m.notify(affected, waited, counted)
}

// ended removes the server. If it was that of the resource, an earlier one takes its place.
func (m *Manager) ended(pool *pool, own *server) {
	m.mu.Lock()
	pool.servers = slices.DeleteFunc(pool.servers, func(s *server) bool { return s == own })
	if pool.server != own && len(pool.servers) > 0 {
		m.mu.Unlock()
		return
	}
	affected, waited, counted := pool.elect()
	m.mu.Unlock()
	m.notify(affected, waited, counted)
}

// notify tells others what has changed.
func (m *Manager) notify(affected, waiting map[types.UID]struct{}, counted bool) {
	for _, uid := range slices.Sorted(maps.Keys(affected)) {
		m.node.RefreshStatus(uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(waiting)) {
		m.node.Sync(uid)
	}
	if counted {
		m.node.NodeStatusChanged()
	}
}

// capacity returns the numbers of all devices and of those that containers can have.
func (p *pool) capacity() (all, allocatable int) {
	if len(p.servers) == 0 && time.Since(p.lost) > LostGrace {
		return 0, 0
	}
	return len(p.devices), len(p.healthy)
}

// NodeResources returns how many devices there are, and how many healthy ones, for the status of the node. A resource
// whose provider has ended has no allocatable devices, and after [LostGrace] no capacity. Its error is nil.
func (m *Manager) NodeResources(context.Context) (capacity, allocatable v1.ResourceList, _ error) {
	m.lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, p := range m.pools {
		all, healthy := p.capacity()
		capacity[name] = *resource.NewQuantity(int64(all), resource.DecimalSI)
		allocatable[name] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable, nil
}

// Manages reports whether the manager decides who has the resource: there is or was a provider of it. Then no other
// component has to count it.
func (m *Manager) Manages(name v1.ResourceName) bool {
	m.lock()
	defer m.mu.Unlock()
	return m.pools[name] != nil
}
