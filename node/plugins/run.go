package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// gather is how long changes are collected before the registry is read: a plugin creates its socket before it
	// listens.
	gather = 50 * time.Millisecond
	// unwatched is the interval of reads while the kernel does not report changes.
	unwatched = 10 * time.Second
)

// run is one call of [Manager.Run]. Its loop does nothing that may block; the registry is read in a goroutine of its
// own.
type run struct {
	*Manager
	watcher watcher
	// unwatched is the reason why watcher watches nothing. It is nil if it watches.
	unwatched error
	// scan belongs to the goroutine that reads the registry while scanning is true.
	scan     *scan
	scanning bool
	scanned  chan scanned
	// scanAt is when the registry is read next; zero for not before a change.
	scanAt  time.Time
	problem string // was logged last
	results chan result
	cancels map[string]context.CancelFunc
	// failed are registrations that have failed and are not logged yet, until logAt. loggedAt is when others were
	// logged.
	failed          failures
	logAt, loggedAt time.Time
	joined          sync.WaitGroup
}

// scanned is what was found in the registry.
type scanned struct {
	found map[string]uint64
	err   error
}

// watcher is the part of a [fswatch.Watcher] that a run uses.
type watcher interface {
	Add(dir string) error
	Changes() <-chan fswatch.Changes
	Close()
}

// matter reports whether the changes can be about sockets that come or go.
func matter(changes fswatch.Changes) bool {
	for _, op := range changes.Ops {
		if op&^(fswatch.Write|fswatch.Chmod) != 0 {
			return true
		}
	}
	return changes.Lost != nil
}

// result is that of a register or deregister.
type result struct {
	path   string
	plugin *Plugin
	err    error
	// cut means that the socket was removed or the manager has stopped meanwhile.
	cut bool
}

func (r *run) loop(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer flow.Wait(&r.joined, flow.Late, func() {
		r.log.Info("Registrations of plugins, or a read of their " +
			"registry, do not end")
	})
	defer func() { r.joined.Go(r.watcher.Close) }()
	defer stop()
	defer r.logFailed()
	r.scanSoon(0)
	for {
		timer := time.NewTimer(r.next(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case changes := <-r.watcher.Changes():
			if matter(changes) {
				r.scanSoon(gather)
			}
		case s := <-r.scanned:
			r.took(ctx, s)
		case res := <-r.results:
			r.finished(ctx, res)
		case <-timer.C:
			if now := time.Now(); !r.logAt.IsZero() && !now.Before(r.logAt) {
				r.logFailed()
			}
			if r.isDue() {
				r.apply(ctx, func(now time.Time) []action { return r.sockets.due(now) })
			}
		}
		timer.Stop()
	}
}

// next starts to read the registry if that is due, and returns the time until there is something to do without a
// change.
func (r *run) next(ctx context.Context) time.Duration {
	const never = 1<<63 - 1
	now := time.Now()
	r.mu.Lock()
	wait := r.sockets.wait(now)
	r.mu.Unlock()
	if !r.logAt.IsZero() {
		wait = flow.Soonest(wait, max(r.logAt.Sub(now), 1))
	}
	switch {
	case r.scanning || r.scanAt.IsZero():
	case r.scanAt.After(now):
		wait = flow.Soonest(wait, r.scanAt.Sub(now))
	default:
		r.startScan(ctx)
	}
	if wait == 0 {
		return never
	}
	return wait
}

// scanSoon has the registry read after the delay, unless it is read before.
func (r *run) scanSoon(delay time.Duration) {
	if at := time.Now().Add(delay); r.scanAt.IsZero() || at.Before(r.scanAt) {
		r.scanAt = at
	}
}

// startScan reads the registry.
func (r *run) startScan(ctx context.Context) {
	r.scanning, r.scanAt = true, time.Time{}
	if r.unwatched != nil {
		r.watcher, r.unwatched = r.watch()
	}
	add, unwatched := r.watcher.Add, r.unwatched
	r.joined.Go(func() {
		found, err := r.scan.read(add)
		if unwatched != nil {
			err = errors.Join(fmt.Errorf("watching: %w", unwatched), err)
		}
		select {
		case r.scanned <- scanned{found, err}:
		case <-ctx.Done():
		}
	})
}

// took takes over what was found in the registry.
func (r *run) took(ctx context.Context, s scanned) {
	r.scanning = false
	if s.err == nil {
		r.problem = ""
	} else {
		r.scanSoon(unwatched)
		if s.err.Error() != r.problem {
			r.problem = s.err.Error()
			r.log.Error(s.err, "The registry of plugins cannot be read or watched as a whole; it is read "+
				"again periodically", "directory", r.dir, "every", unwatched)
		}
	}
	r.apply(ctx, func(now time.Time) []action { return r.sockets.found(now, s.found) })
}

// finished takes over a result.
func (r *run) finished(ctx context.Context, res result) {
	r.cancels[res.path]()
	delete(r.cancels, res.path)
	if res.err != nil && !res.cut {
		r.note(res.path, res.err)
	}
	r.apply(ctx, func(now time.Time) []action { return r.sockets.done(now, res.path, res.plugin, res.err) })
}

// isDue reports whether a back-off is over.
func (r *run) isDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.sockets.dueAt.IsZero() && !time.Now().Before(r.sockets.dueAt)
}

// apply carries out what a transition returns.
func (r *run) apply(ctx context.Context, transition func(now time.Time) []action) {
	r.mu.Lock()
	actions := transition(time.Now())
	r.mu.Unlock()
	for _, a := range actions {
		if a.kind == cancel {
			r.cancels[a.path]()
			continue
		}
		call, cancel := context.WithCancel(ctx)
		r.cancels[a.path] = cancel
		r.joined.Go(func() {
			res := result{path: a.path}
			if a.kind == register {
				res.plugin, res.err = r.register(ctx, call, a.path)
				res.cut = call.Err() != nil
			} else {
				r.deregister(a.plugin)
			}
			select {
			case r.results <- res:
			case <-ctx.Done():
			}
		})
	}
}

// register registers the plugin at a socket. ctx ends before running if the socket is removed.
func (r *run) register(running, ctx context.Context, path string) (*Plugin, error) {
	conn, err := r.connect(ctx, path)
	if err != nil {
		return nil, &failure{noAnswer, fmt.Errorf("connecting to it: %w", err)}
	}
	defer conn.Close()
	info, err := r.info(ctx, conn)
	if err != nil {
		return nil, &failure{noAnswer, fmt.Errorf("asking it for its type and name: %w", err)}
	}
	p := Plugin{Type: info.GetType(), Name: info.GetName(), Endpoint: info.GetEndpoint(),
		Versions: info.GetSupportedVersions(), Socket: path}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	handler := r.handlers[p.Type]
	if handler == nil {
		return nil, r.refuse(ctx, conn, fmt.Errorf("no handler registered for plugin type %q", text.Clip(p.Type, 100)))
	}
	if err := runtime.Recover(func() error { return handler.Validate(p) }); err != nil {
		return nil, r.refuse(ctx, conn, fmt.Errorf("plugin validation failed: %w", err))
	}
	if err := runtime.Recover(func() error { return handler.Register(ctx, p) }); err != nil {
		return nil, r.refuse(ctx, conn, fmt.Errorf("plugin registration failed: %w", err))
	}
	if err := r.notify(ctx, conn, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		if running.Err() == nil { // otherwise the manager stops, and the next one registers it again
			r.deregister(p)
		}
		return nil, fmt.Errorf("telling %s that it is registered: %w", text.Clip(p.String(), 500), err)
	}
	r.log.Info("Plugin registered", "type", p.Type, "name", p.Name, "endpoint", p.Endpoint)
	return &p, nil
}

// deregister calls the handler.
func (r *run) deregister(p Plugin) {
	err := runtime.Recover(func() error { r.handlers[p.Type].Deregister(p); return nil })
	if err != nil {
		r.log.Error(err, "The handler of a plugin has panicked", "type", p.Type, "name", p.Name)
		return
	}
	r.log.Info("Plugin deregistered", "type", p.Type, "name", p.Name, "endpoint", p.Endpoint)
}

// refuse tells the plugin why it is not registered, and returns that.
func (r *run) refuse(ctx context.Context, conn registration, why error) error {
	if err := r.notify(ctx, conn, &registerapi.RegistrationStatus{Error: why.Error()}); err != nil {
		return fmt.Errorf("%w; and the plugin cannot be told: %w", why, err)
	}
	return why
}

func (r *run) connect(ctx context.Context, path string) (registration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	return r.dial(ctx, path)
}

func (r *run) info(ctx context.Context, conn registration) (*registerapi.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	return conn.GetInfo(ctx, &registerapi.InfoRequest{})
}

func (r *run) notify(ctx context.Context, conn registration, s *registerapi.RegistrationStatus) error {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	_, err := conn.NotifyRegistrationStatus(ctx, s)
	return err
}
