package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// gather is how long changes are collected before the registry is read: a plugin creates its socket before it listens.
	gather = 50 * time.Millisecond
	// unwatched is the interval of reads while the kernel does not report changes.
	unwatched = 10 * time.Second
)

// run is one call of [Manager.Run].
type run struct {
	*Manager
	scan    *scan
	watcher watcher // nil while there is none
	problem string  // was logged last
	results chan result
	cancels map[string]context.CancelFunc
	joined  sync.WaitGroup
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
	defer flow.Wait(&r.joined, flow.Late, func() { r.opts.Logger.Info("Registrations of plugins do not end") })
	defer stop()
	defer func() {
		if r.watcher != nil {
			r.watcher.Close()
		}
	}()
	scanAgain := r.read(ctx)
	for {
		r.mu.Lock()
		wait := r.sockets.wait(time.Now())
		r.mu.Unlock()
		var changed <-chan struct{}
		if r.watcher != nil {
			changed = r.watcher.Changed()
		}
		timer := time.NewTimer(flow.Soonest(wait, scanAgain))
		if wait == 0 && scanAgain == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			if !flow.Sleep(ctx, gather) {
				return nil
			}
			scanAgain = r.read(ctx)
		case res := <-r.results:
			r.finished(ctx, res)
		case <-timer.C:
			if scanAgain > 0 {
				scanAgain = r.read(ctx)
			}
			r.apply(ctx, func(now time.Time) []action { return r.sockets.due(now) })
		}
		timer.Stop()
	}
}

// read reads the registry. It returns the time after which it is read again without a change, 0 for never.
func (r *run) read(ctx context.Context) time.Duration {
	var problems []error
	if r.watcher == nil {
		w, err := r.watch()
		if err != nil {
			problems = append(problems, fmt.Errorf("watching: %w", err))
		} else {
			r.watcher = w
		}
	}
	found, err := r.scan.read(func(dir string) error {
		if r.watcher == nil {
			return nil
		}
		return r.watcher.Add(dir)
	})
	if err := errors.Join(append(problems, err)...); err == nil {
		r.problem = ""
	} else if err.Error() != r.problem {
		r.problem = err.Error()
		r.opts.Logger.Error(err, "The registry of plugins cannot be read or watched as a whole; it is read again periodically", "directory", r.dir, "every", unwatched)
	}
	r.apply(ctx, func(now time.Time) []action { return r.sockets.found(now, found) })
	if r.problem != "" {
		return unwatched
	}
	return 0
}

// finished takes over a result.
func (r *run) finished(ctx context.Context, res result) {
	r.cancels[res.path]()
	delete(r.cancels, res.path)
	if res.err != nil && !res.cut {
		r.opts.Logger.Error(res.err, "A plugin cannot be registered", "socket", res.path)
	}
	r.apply(ctx, func(now time.Time) []action { return r.sockets.done(now, res.path, res.plugin, res.err) })
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
	conn, err := r.dial(path)
	if err != nil {
		return nil, fmt.Errorf("connecting to it: %w", err)
	}
	defer conn.Close()
	info, err := r.info(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("asking it for its type and name: %w", err)
	}
	p := Plugin{Type: info.GetType(), Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: path}
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
	r.opts.Logger.Info("Plugin registered", "type", p.Type, "name", p.Name, "endpoint", p.Endpoint)
	return &p, nil
}

// deregister calls the handler.
func (r *run) deregister(p Plugin) {
	err := runtime.Recover(func() error { r.handlers[p.Type].Deregister(p); return nil })
	if err != nil {
		r.opts.Logger.Error(err, "The handler of a plugin has panicked", "type", p.Type, "name", p.Name)
		return
	}
	r.opts.Logger.Info("Plugin deregistered", "type", p.Type, "name", p.Name, "endpoint", p.Endpoint)
}

// refuse tells the plugin why it is not registered, and returns that.
func (r *run) refuse(ctx context.Context, conn registration, why error) error {
	if err := r.notify(ctx, conn, &registerapi.RegistrationStatus{Error: why.Error()}); err != nil {
		return fmt.Errorf("%w; and the plugin cannot be told: %w", why, err)
	}
	return why
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
