// Package fake has a scripted provider of devices, with which an agent and a device manager are tested without devices
// and in virtual time.
package fake

import (
	"context"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Call is a call of a method of a [Provider].
type Call struct {
	// Method is "Prefer", "Allocate" or "PreStart".
	Method string
	// Container is the name of the container, "" for Prefer.
	Container string
	IDs       []string
}

// Provider is a provider whose devices and answers a test sets. The zero value of a function is the answer of a
// provider without an opinion; one that is set is called after the call was recorded. It is safe for concurrent use;
// the functions are set before it is served.
type Provider struct {
	// OnPrefer answers Prefer.
	OnPrefer func(ctx context.Context, req devices.PreferRequest) ([]string, error)
	// OnAllocate answers Allocate. If nil, the container gets an environment variable DEVICES with the IDs.
	OnAllocate func(ctx context.Context, req devices.Request) (runtime.ContainerEdits, error)
	// OnPreStart answers PreStart.
	OnPreStart func(ctx context.Context, req devices.Request) error

	resource v1.ResourceName

	mu      sync.Mutex
	list    []devices.Device
	changed chan struct{} // closed with each change
	err     error
	calls   []Call
}

var _ devices.Provider = (*Provider)(nil)

// New returns a provider of the devices.
func New(resource v1.ResourceName, list ...devices.Device) *Provider {
	return &Provider{resource: resource, list: list, changed: make(chan struct{})}
}

// Set replaces the devices.
func (p *Provider) Set(list ...devices.Device) { p.change(func() { p.list = slices.Clone(list) }) }

// End has Watch return the error.
func (p *Provider) End(err error) { p.change(func() { p.err = err }) }

func (p *Provider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Calls returns the calls so far.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Provider) record(method, container string, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, Call{method, container, slices.Clone(ids)})
}

// Resource implements [devices.Provider].
func (p *Provider) Resource() v1.ResourceName { return p.resource }

// Watch implements [devices.Provider].
func (p *Provider) Watch(ctx context.Context, update func([]devices.Device)) error {
	for {
		p.mu.Lock()
		list, changed, err := p.list, p.changed, p.err
		p.err = nil
		p.mu.Unlock()
		if err != nil {
			return err
		}
		update(list)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Prefer implements [devices.Provider].
func (p *Provider) Prefer(ctx context.Context, req devices.PreferRequest) ([]string, error) {
	p.record("Prefer", "", req.Available)
	if p.OnPrefer == nil {
		return nil, nil
	}
	return p.OnPrefer(ctx, req)
}

// Allocate implements [devices.Provider].
func (p *Provider) Allocate(ctx context.Context, req devices.Request) (runtime.ContainerEdits, error) {
	p.record("Allocate", req.Container.Name, req.IDs)
	if p.OnAllocate == nil {
		return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "DEVICES", Value: strings.Join(req.IDs, ",")}}}, nil
	}
	return p.OnAllocate(ctx, req)
}

// PreStart implements [devices.Provider].
func (p *Provider) PreStart(ctx context.Context, req devices.Request) error {
	p.record("PreStart", req.Container.Name, req.IDs)
	if p.OnPreStart == nil {
		return nil
	}
	return p.OnPreStart(ctx, req)
}
