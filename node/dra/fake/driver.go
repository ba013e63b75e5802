package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/dra"
)

// Call is a call of a method of a [Driver].
type Call struct {
	// Method is "Prepare" or "Unprepare".
	Method string
	Claims []dra.Claim
}

// String returns the method and the names of the claims.
func (c Call) String() string {
	text := c.Method
	for _, claim := range c.Claims {
		text += " " + claim.Namespace + "/" + claim.Name
	}
	return text
}

// Driver is a driver whose answers a test sets. One of the functions is called after the call was recorded, and
// replaces the default answer. Make it with [NewDriver]. It is safe for concurrent use; the functions are set before it
// is added to a manager.
type Driver struct {
	// OnPrepare answers Prepare. If nil, each claim has one device: of the pool "node", with the name of the claim, and
	// with the CDI name "<driver>/device=<claim>".
	OnPrepare func(ctx context.Context, claims []dra.Claim) (map[types.UID]dra.Prepared, error)
	// OnUnprepare answers Unprepare. If nil, it succeeds.
	OnUnprepare func(ctx context.Context, claims []dra.Claim) (map[types.UID]error, error)

	name string

	mu       sync.Mutex
	calls    []Call
	prepared map[types.UID]dra.Claim
	failing  error
	held     chan struct{} // nil: calls do not wait
}

var _ dra.Driver = (*Driver)(nil)

// NewDriver returns a driver with the name.
func NewDriver(name string) *Driver {
	return &Driver{name: name, prepared: map[types.UID]dra.Claim{}}
}

// Name returns the name of the driver.
func (d *Driver) Name() string { return d.name }

// Fail has calls fail with the error, until it is called with nil.
func (d *Driver) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = err
}

// Hold has calls wait, until release is called.
func (d *Driver) Hold() (release func()) {
	held := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
	return sync.OnceFunc(func() {
		close(held)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.held == held {
			d.held = nil
		}
	})
}

// Calls returns the calls so far, also those that wait.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Prepared returns the claims that are prepared, by namespace and name.
func (d *Driver) Prepared() []dra.Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.prepared), func(a, b dra.Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// begin records a call, and waits as long as it is held.
func (d *Driver) begin(ctx context.Context, method string, claims []dra.Claim) error {
	d.mu.Lock()
	d.calls = append(d.calls, Call{method, slices.Clone(claims)})
	held := d.held
	d.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failing
}

// Prepare implements [dra.Driver].
func (d *Driver) Prepare(ctx context.Context, claims []dra.Claim) (map[types.UID]dra.Prepared, error) {
	if err := d.begin(ctx, "Prepare", claims); err != nil {
		return nil, err
	}
	out := map[types.UID]dra.Prepared{}
	for _, c := range claims {
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "node", Name: c.Name,
			CDIDevices: []string{d.name + "/device=" + c.Name}}}}
	}
	if d.OnPrepare != nil {
		var err error
		if out, err = d.OnPrepare(ctx, claims); err != nil {
			return out, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range claims {
		if p, ok := out[c.UID]; ok && p.Err == nil {
			d.prepared[c.UID] = c
		}
	}
	return out, nil
}

// Unprepare implements [dra.Driver].
func (d *Driver) Unprepare(ctx context.Context, claims []dra.Claim) (map[types.UID]error, error) {
	if err := d.begin(ctx, "Unprepare", claims); err != nil {
		return nil, err
	}
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = nil
	}
	if d.OnUnprepare != nil {
		var err error
		if out, err = d.OnUnprepare(ctx, claims); err != nil {
			return out, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range claims {
		if err, ok := out[c.UID]; ok && err == nil {
			delete(d.prepared, c.UID)
		}
	}
	return out, nil
}
