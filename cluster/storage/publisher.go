package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

const (
	// registrationTimeout is how long a change of a driver waits until the node object is known.
	registrationTimeout = time.Second
	// changeTimeout is how long the caller then waits for the change. What is not done by then, [Storage.Run] does: the
	// registration of a driver does not fail because the API server is away.
	changeTimeout = 5 * time.Second
)

var (
	// ErrNotInitialized is returned by [Storage.Ready] before the CSINode object of the node exists.
	ErrNotInitialized = errors.New("CSINode is not yet initialized") // kubelet's message
	// errNoAnswer is in the error of a request without an answer: the change is made later.
	errNoAnswer = errors.New("the API server does not answer")
)

// change is a driver to publish or to remove.
type change struct {
	name   string
	driver *csinode.Driver // nil: it is removed
}

// publisher publishes drivers in the CSINode object and in the node object.
type publisher struct {
	client kubernetes.Interface
	node   string
	log    logr.Logger
	// writing holds a token while one goroutine reads and writes the two objects.
	writing chan struct{}
	// dirty holds a token while there is something for run to do.
	dirty flow.Signal
	// known is closed when the node object is known.
	known chan struct{}

	mu sync.Mutex
	// uid is that of the newest known node object, "" before there is one.
	uid types.UID
	// initialized is the UID of the node object whose CSINode object exists, "" before there is one.
	initialized types.UID
	// failed is the error of the latest attempt to initialize the CSINode object, nil after a success.
	failed error
	// pending are the changes that are not made yet, by the name of the driver; a later one replaces an earlier one.
	pending map[string]*change
	// installed are the drivers that are published.
	installed map[string]csinode.Driver
}

func newPublisher(client kubernetes.Interface, node string, log logr.Logger) *publisher {
	return &publisher{
		client: client, node: node, log: log, writing: make(chan struct{}, 1), dirty: flow.NewSignal(),
		known: make(chan struct{}), pending: map[string]*change{}, installed: map[string]csinode.Driver{},
	}
}

// ready returns why the CSINode object does not exist, and nil if it has existed.
func (p *publisher) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.initialized != "":
		return nil
	case p.failed != nil:
		return fmt.Errorf("failed to initialize CSINode: %w", p.failed) // kubelet's message
	default:
		return ErrNotInitialized
	}
}

// nodeChanged takes the UID of the node object. If it is a new one, everything is published again: the garbage
// collector deletes the CSINode object of the former one.
func (p *publisher) nodeChanged(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uid == "" || uid == p.uid {
		return
	}
	if p.uid == "" {
		close(p.known)
	}
	p.uid = uid
	for name, driver := range p.installed {
		if p.pending[name] == nil {
			p.pending[name] = &change{name: name, driver: &driver}
		}
	}
	p.dirty.Notify()
}

// install publishes a driver.
func (p *publisher) install(ctx context.Context, d csinode.Driver) error {
	if d.Name == "" || d.NodeID == "" {
		return errors.New("error adding CSI driver node info: the name of the driver and driverNodeID must not be empty")
	}
	switch {
	case d.MaxVolumes > math.MaxInt32:
		p.log.Info("A driver reports more volumes than the API can have; the number is truncated", "driver", d.Name,
			"reported", d.MaxVolumes, "used", math.MaxInt32)
	case d.MaxVolumes < 0:
		p.log.Error(nil, "A driver reports a negative number of volumes; no number is published", "driver", d.Name,
			"reported", d.MaxVolumes)
	}
	d.Topology = maps.Clone(d.Topology)
	return p.change(ctx, &change{name: d.Name, driver: &d})
}

// uninstall removes a driver.
func (p *publisher) uninstall(ctx context.Context, name string) error {
	return p.change(ctx, &change{name: name})
}

// change makes a change now, or leaves it to run if the API server does not answer or the node is not registered.
func (p *publisher) change(ctx context.Context, c *change) error {
	p.mu.Lock()
	p.pending[c.name] = c
	p.mu.Unlock()
	err := p.registered(ctx)
	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err == nil {
		if err = p.initialize(limited); err != nil {
			err = fmt.Errorf("failed to initialize CSINode: %w", err)
		}
	}
	if err == nil {
		err = p.apply(limited, c)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		p.settle(c, false)
		return context.Cause(ctx)
	case errors.Is(err, errNoAnswer), limited.Err() != nil:
		p.log.Info("A CSI driver is published or removed when the API server answers", "driver", c.name,
			"remove", c.driver == nil, "err", err)
		p.dirty.Notify()
		return nil
	default:
		p.settle(c, false)
		return err
	}
}

// registered waits a moment until the node object is known.
func (p *publisher) registered(ctx context.Context) error {
	late := time.NewTimer(registrationTimeout)
	defer late.Stop()
	select {
	case <-p.known:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("the node is not registered: %w", errNoAnswer)
	}
}

// settle removes a change from the pending ones, unless a later one has replaced it. made is false if it was given up.
func (p *publisher) settle(c *change, made bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[c.name] == c {
		delete(p.pending, c.name)
	}
	switch {
	case c.driver == nil:
		delete(p.installed, c.name)
	case made:
		p.installed[c.name] = *c.driver
	}
}

// run creates the CSINode object when the node is registered, and makes the changes that could not be made before,
// until ctx ends.
func (p *publisher) run(ctx context.Context) {
	backoff := flow.Backoff{Min: time.Second, Max: time.Minute}
	var retry <-chan time.Time
	for failures := 0; ; {
		ended := outage.Ended(p.client)
		if err := p.publish(ctx); ctx.Err() != nil {
			return
		} else if err == nil {
			failures, retry, ended = 0, nil, nil
		} else {
			failures++
			if failures&(failures-1) == 0 { // those that are logged are twice as far apart each time
				p.log.Error(err, "CSI drivers of the node cannot be published; it is tried again", "failures", failures)
			}
			delay := backoff.After(failures)
			retry = time.After(delay + rand.N(delay/2))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
		case <-retry:
		case <-ended:
		}
	}
}

// publish creates the CSINode object and makes all changes that are pending.
func (p *publisher) publish(ctx context.Context) error {
	p.mu.Lock()
	known := p.uid != ""
	pending := slices.SortedFunc(maps.Values(p.pending), func(a, b *change) int {
		return strings.Compare(a.name, b.name)
	})
	p.mu.Unlock()
	if !known {
		return nil
	}
	if err := p.initialize(ctx); err != nil {
		return err
	}
	var errs []error
	for _, c := range pending {
		errs = append(errs, p.apply(ctx, c))
	}
	return errors.Join(errs...)
}

// initialize creates the CSINode object of the present node object, or adopts it.
func (p *publisher) initialize(ctx context.Context) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	p.mu.Lock()
	uid, done := p.uid, p.initialized == p.uid
	p.mu.Unlock()
	if done {
		return nil
	}
	err := p.updateCSINode(ctx, uid, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed = err
		return err
	}
	p.initialized, p.failed = uid, nil
	return nil
}

// apply makes a change, unless it is made or replaced already.
func (p *publisher) apply(ctx context.Context, c *change) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	p.mu.Lock()
	uid, due := p.uid, p.pending[c.name] == c
	p.mu.Unlock()
	if !due {
		return nil
	}
	if err := p.write(ctx, uid, c); err != nil {
		return err
	}
	p.settle(c, true)
	return nil
}

// lock begins reads and writes of the two objects.
func (p *publisher) lock(ctx context.Context) error {
	select {
	case p.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *publisher) unlock() { <-p.writing }
