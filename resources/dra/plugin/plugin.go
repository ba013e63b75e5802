package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapbv1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/resources/dra"
	"github.com/kubeletkit/kubeletkit/resources/plugins"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of [Drivers].
type Options struct {
	// Call is called after each call of a driver, with the gRPC method and the name of its status code. It must not block.
	Call func(driver, method, code string, took time.Duration)
	// Logger receives problems. Default: that of package slog.
	Logger logr.Logger
}

// Drivers are the drivers that are plugins. Make them with [New]. They are safe for concurrent use.
type Drivers struct {
	manager *dra.Manager
	opts    Options
	started atomic.Bool
	// running is closed when Run has set ctx.
	running chan struct{}
	ctx     context.Context
	joined  sync.WaitGroup

	// mu guards the fields below.
	mu      sync.Mutex
	byName  map[id]*driver
	stopped bool
}

// id identifies a plugin.
type id struct{ name, endpoint string }

var _ plugins.Handler = (*Drivers)(nil)

// New returns drivers that are added to the manager. It connects to nothing.
func New(manager *dra.Manager, opts Options) (*Drivers, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if manager == nil {
		return nil, errors.New("dra/plugin: the manager is nil")
	}
	return &Drivers{manager: manager, opts: opts, running: make(chan struct{}), byName: map[id]*driver{}}, nil
}

// Run keeps the connections to the plugins until ctx ends, and returns nil. A second call returns [runtime.ErrAlreadyRunning].
func (d *Drivers) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return fmt.Errorf("dra/plugin: %w", runtime.ErrAlreadyRunning)
	}
	d.ctx = ctx
	close(d.running)
	<-ctx.Done()
	d.mu.Lock()
	d.stopped = true
	for _, p := range d.byName {
		p.stop()
	}
	d.mu.Unlock()
	flow.Wait(&d.joined, flow.Late, func() { d.opts.Logger.Info("Connections to DRA drivers do not end") })
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
		return "", "", fmt.Errorf("none of the gRPC services of DRA driver %s, %q, is supported: %q, %q", p.Name, p.Versions, drapbv1.DRAPluginService, drapbv1beta1.DRAPluginService)
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

// Register implements [plugins.Handler]. It waits until Run was called.
func (d *Drivers) Register(ctx context.Context, p plugins.Plugin) error {
	prepare, health, err := services(p)
	if err != nil {
		return err
	}
	select {
	case <-d.running:
	case <-ctx.Done():
		return flow.Ended(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := id{p.Name, p.Endpoint}
	switch {
	case d.stopped:
		return errors.New("the agent stops")
	case d.byName[key] != nil:
		return fmt.Errorf("endpoint %s is already registered for DRA driver %s", p.Endpoint, p.Name)
	}
	driver, err := newDriver(d.ctx, p, prepare, d.opts.Call)
	if err != nil {
		return err
	}
	d.byName[key] = driver
	driver.endpoint = d.manager.Add(p.Name, driver)
	d.joined.Go(driver.watch)
	if health != "" {
		d.joined.Go(func() { driver.followHealth(health, d.opts.Logger) })
	}
	return nil
}

// Deregister implements [plugins.Handler].
func (d *Drivers) Deregister(p plugins.Plugin) {
	d.mu.Lock()
	key := id{p.Name, p.Endpoint}
	driver := d.byName[key]
	delete(d.byName, key)
	d.mu.Unlock()
	if driver != nil {
		driver.stop()
		driver.endpoint.Remove()
	}
}
