package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapbv1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// Drivers are the drivers that are plugins. They are a component of an agent, and run while the [dra.Manager] does.
// Make them with [New]. They are safe for concurrent use, but calls about one plugin must not overlap, as package
// plugins sees to it.
type Drivers struct {
	manager *dra.Manager
	node    lifecycle.Node

	// mu guards the fields below.
	mu     sync.Mutex
	byName map[id]*driver
}

// id identifies a plugin.
type id struct{ name, endpoint string }

var (
	_ lifecycle.Joiner = (*Drivers)(nil)
	_ plugins.Handler  = (*Drivers)(nil)
)

// New returns drivers that are added to the manager. It connects to nothing.
func New(manager *dra.Manager) (*Drivers, error) {
	if manager == nil {
		return nil, errors.New("dra/plugin: the manager is nil")
	}
	return &Drivers{manager: manager, node: lifecycle.NopNode{}, byName: map[id]*driver{}}, nil
}

// Name implements [lifecycle.Component].
func (d *Drivers) Name() string { return "DRA drivers" }

// Join implements [lifecycle.Joiner]. The node receives the measurements of calls, see [dra.Call].
func (d *Drivers) Join(node lifecycle.Node) error {
	d.node = node
	return nil
}

// services returns the services that are used of a plugin; that of the health is empty if it has none.
func services(p plugins.Plugin) (prepare, health string, err error) {
	for _, v := range p.Versions {
		switch v {
		case drapbv1.DRAPluginService, drapbv1beta1.DRAPluginService:
			if prepare == "" {
				prepare = v
			}
		}
	}
	if prepare == "" {
		return "", "", fmt.Errorf("none of the gRPC services of DRA driver %s, %q, is supported: %q, %q", p.Name,
			p.Versions, drapbv1.DRAPluginService, drapbv1beta1.DRAPluginService)
	}
	for _, v := range []string{drahealthv1.DRAResourceHealthService, drahealthv1alpha1.DRAResourceHealthService} {
		if health == "" && slices.Contains(p.Versions, v) {
			health = v
		}
	}
	return prepare, health, nil
}

// Validate implements [plugins.Handler].
func (d *Drivers) Validate(p plugins.Plugin) error {
	if p.Name == "" {
		return errors.New("the DRA driver has no name")
	}
	_, _, err := services(p)
	return err
}

// Register implements [plugins.Handler]. The connection is kept while the manager runs.
func (d *Drivers) Register(_ context.Context, p plugins.Plugin) error {
	prepare, health, err := services(p)
	if err != nil {
		return err
	}
	driver, err := newDriver(p, prepare, d.node)
	if err != nil {
		return err
	}
	key := id{p.Name, p.Endpoint}
	if !d.add(key, driver) {
		return errors.Join(fmt.Errorf("endpoint %s is already registered for DRA driver %s", p.Endpoint, p.Name),
			driver.conn.Close())
	}
	driver.endpoint = d.manager.Add(p.Name, driver)
	if !driver.endpoint.Go(driver.watch) { // the manager has stopped, and keeps what it knows for the next one
		d.mu.Lock()
		delete(d.byName, key)
		d.mu.Unlock()
		return errors.Join(fmt.Errorf("DRA driver %s cannot be registered: the agent stops", p.Name),
			driver.conn.Close())
	}
	if health != "" {
		driver.endpoint.Go(func(ctx context.Context) { driver.followHealth(ctx, health, d.node.Logger()) })
	}
	return nil
}

// add adds the driver, unless there is one.
func (d *Drivers) add(key id, driver *driver) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byName[key] != nil {
		return false
	}
	d.byName[key] = driver
	return true
}

// Deregister implements [plugins.Handler].
func (d *Drivers) Deregister(p plugins.Plugin) {
	d.mu.Lock()
	key := id{p.Name, p.Endpoint}
	driver := d.byName[key]
	delete(d.byName, key)
	d.mu.Unlock()
	if driver != nil {
		driver.endpoint.Remove()
	}
}
