package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/holdings"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// CheckpointName is the name of the file in which kubelet keeps the devices of pods. It is in
// /var/lib/kubelet/device-plugins, whatever the root directory is.
const CheckpointName = "kubelet_internal_checkpoint"

// LostGrace is the time for which the capacity of a resource stays when its provider has ended, as with kubelet. During
// it, and after it, no device is allocatable.
const LostGrace = 5 * time.Minute

// Options are the settings of a [Manager].
type Options struct {
	// Providers are those of devices of the node itself. [Manager.Run] serves them. Others are served by
	// [Manager.Serve].
	Providers []Provider
	// FailWithoutProvider fails pods whose provider is missing, as kubelet does, with the reason
	// UnexpectedAdmissionError: pods that are admitted, and after a reboot those that were admitted before. Otherwise
	// they wait until it is back.
	FailWithoutProvider bool
	// WaitForDevices has a pod that requests more devices than are free wait until there are enough, such as one that
	// is not plugged in yet. Otherwise the pod fails, as with kubelet, with the reason UnexpectedAdmissionError. The
	// policies restricted and single-numa-node do not hold for devices that are chosen later.
	WaitForDevices bool
	// Nodes are the memory nodes of the machine: others that a provider names are ignored. Default: all of them are
	// used.
	Nodes numa.Nodes
	// Lock is called before the checkpoint is read, again until it returns nil: it makes sure that the checkpoint is of
	// this manager alone. Until then it is as one that the disk does not return: pods that request extended resources
	// wait, and nothing is written. nil: nothing is called.
	Lock func() error
	// CallTimeout is the timeout of Prefer and Allocate. Default 2 minutes. That of PreStart is 30 s, as with kubelet.
	CallTimeout time.Duration
}

// Allocated is the measurement of a call Allocate of a provider: kubelet_device_plugin_alloc_duration_seconds.
type Allocated struct {
	Resource v1.ResourceName
	Took     time.Duration
}

// Registered is the measurement of a device plugin that registers by its socket:
// kubelet_device_plugin_registration_total. Package node/devices/plugin measures it before the plugin is served.
type Registered struct{ Resource v1.ResourceName }

// IsMeasurement implements [runtime.Measurement].
func (Allocated) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Registered) IsMeasurement() {}

// Manager gives devices to containers. It joins the life of pods, see package lifecycle. Make one with [New]. It is
// safe for concurrent use.
type Manager struct {
	path string
	opts Options
	node lifecycle.Node
	log  logr.Logger

	running sync.Once
	held    *holdings.Record

	// mu guards the fields below. Nobody is called, and nothing is read or written under it.
	mu sync.Mutex
	state
}

var (
	_ lifecycle.Joiner          = (*Manager)(nil)
	_ lifecycle.Admitter        = (*Manager)(nil)
	_ lifecycle.RefusalHandler  = (*Manager)(nil)
	_ lifecycle.Preparer        = (*Manager)(nil)
	_ lifecycle.ContainerEditor = (*Manager)(nil)
	_ lifecycle.EndedHandler    = (*Manager)(nil)
	_ lifecycle.GoneHandler     = (*Manager)(nil)
	_ lifecycle.StatusEditor    = (*Manager)(nil)
	_ lifecycle.Runner          = (*Manager)(nil)
)

// New returns a manager of devices, which keeps the devices of pods in the file at path, whose directory it makes when
// it writes; "" keeps nothing, so that pods have other devices after a restart of the agent. It reads nothing. Its
// error names the options that are wrong.
func New(path string, opts Options) (*Manager, error) {
	var errs []error
	names := map[string]bool{}
	for i, p := range opts.Providers {
		if p == nil {
			errs = append(errs, fmt.Errorf("Options.Providers[%d] is nil", i))
			continue
		}
		name := string(p.Resource())
		if err := CheckResource(p.Resource()); err != nil {
			errs = append(errs, fmt.Errorf("Options.Providers[%d]: %w", i, err))
		}
		if names[name] {
			errs = append(errs, fmt.Errorf("Options.Providers[%d]: there is another provider of %s", i, name))
		}
		names[name] = true
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("devices: %w", errors.Join(errs...))
	}
	opts.CallTimeout = cmp.Or(max(opts.CallTimeout, 0), 2*time.Minute)
	m := &Manager{path: path, opts: opts, state: newState()}
	m.held = holdings.New(path, m.load, m.content, m.releaseAll, holdings.Options{})
	for _, p := range opts.Providers {
		m.pool(p.Resource()) // pods that come before Run wait for it
	}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. Pods that wait for devices are synced when these have changed or another pod has
// released some. Statuses of pods are generated again when their devices have changed their health, and that of the
// node when the numbers of devices have changed. A provider that fails to make the devices of a pod ready is an event
// FailedPrepareDevices. Gone of the node reports which pods of the checkpoint have ended while no agent ran.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log = node, node.Logger()
	m.held.Join(m.node)
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "devices" }

// Order implements [lifecycle.Ordered]. Admit gives devices to containers that have none yet. A topology.Manager
// chooses them near the memory of the container, so it comes before; and before it, all that refuses pods for other
// reasons.
func (*Manager) Order() lifecycle.Order { return lifecycle.Order{After: []string{"topology"}} }

// lock reads the checkpoint, the first time, and takes mu.
func (m *Manager) lock() {
	_ = m.held.Load()
	m.mu.Lock()
}

// restart is the back-off of providers of the node itself that end.
var restart = flow.Backoff{Min: time.Second, Max: time.Minute}

// Run serves the providers of the options, and writes the checkpoint again when that has failed, until ctx ends. It
// implements [lifecycle.Runner].
func (m *Manager) Run(ctx context.Context) error {
	err := fmt.Errorf("devices: %w", runtime.ErrAlreadyRunning)
	m.running.Do(func() { err = nil })
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	if m.path != "" {
		all.Go(func() { m.held.Run(ctx, m.log) })
	}
	for _, p := range m.opts.Providers {
		all.Go(func() {
			restart.Repeat(ctx, func() error { return cmp.Or(m.Serve(ctx, p), errEnded) },
				func(err error, retryIn time.Duration) {
					m.log.Error(err, "A provider of devices has ended; it is started again",
						"resource", p.Resource(), "retryIn", retryIn)
				})
		})
	}
	return nil
}

var errEnded = errors.New("the provider returned from Watch")
