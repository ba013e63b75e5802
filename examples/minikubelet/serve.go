package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// serve runs the agent and its ports until ctx or signals end, or a client has ended all pods. It
// returns what was running then.
func serve(ctx, signals context.Context, s *config.Settings, log logr.Logger,
	display *terminal.Display) (left running, err error) {
	notifier := systemd.FromEnvironment() // before there are child processes
	if err := prepareHost(s, log); err != nil {
		return left, err
	}
	reserve, err := fillThreads(log)
	if err != nil {
		return left, err
	}
	m, err := newMetrics(log.WithName("metrics"))
	if err != nil {
		return left, err
	}
	devs, err := newDevices(s, m)
	if err != nil {
		return left, err
	}
	joins, err := newMember(s, m, devs, log)
	if err != nil {
		return left, err
	}
	rt, cgroups, err := dialRuntime(ctx, s, joins, m.cri, log)
	if err != nil {
		return left, err
	}
	defer func() { _ = rt.Close() }()
	memory := newReleaser(releaseMemory)
	defer memory.stop()
	pods := recent.New(func(pod runtime.PodRef) { memory.noted(); display.Changed(pod) })
	logged := logEvents(slog.New(logr.ToSlogHandler(log)))
	var broken problems
	opts, err := agentOptions(s, rt, hooks{
		sink: pods, metrics: m.parts, logs: m.logs, problem: broken.note,
		event: func(e runtime.Event) { pods.Event(e); logged(e) },
	}, log)
	if err != nil {
		return left, err
	}
	killed, err := addMemory(&opts, s, cgroups)
	if err != nil {
		return left, err
	}
	if err := addShutdown(&opts, s, m); err != nil {
		return left, err
	}
	if joins != nil {
		if err := joins.Configure(&opts); err != nil {
			return left, err
		}
	}
	if err := addUsers(&opts, s, rt, joins); err != nil {
		return left, err
	}
	place, err := newPlacement(ctx, s, rt, m, log)
	if err != nil {
		return left, err
	}
	if err := joinCgroups(ctx, &opts, s, cgroups, place); err != nil {
		return left, err
	}
	if err := addEvictions(&opts, s, rt, cgroups, m, log); err != nil {
		return left, err
	}
	claims, err := newDynamicResources(&opts, s, joins, m, log)
	if err != nil {
		return left, err
	}
	if err := addProviders(&opts, s, joins, m, log); err != nil {
		return left, err
	}
	if err := place.join(&opts); err != nil {
		return left, err
	}
	devs.join(&opts)
	if !s.PodLevelResources() {
		withoutPodLevelResources(&opts)
	}
	sources := append(place.sources(), claims.held())
	held, err := addPodResources(&opts, s, append(sources, devs.held()...), m)
	if err != nil {
		return left, err
	}
	handlers := map[string]plugins.Handler{}
	claims.handle(handlers)
	if devs != nil {
		handlers[plugins.TypeDevice] = devs
	}
	if err := addPlugins(&opts, s, handlers, m); err != nil {
		return left, err
	}
	addPodCIDR(&opts, s, rt)
	opts.Join = append(opts.Join, reserve)
	sopts := serverOptions(s, rt, opts.Host, m, display, log)
	sopts.HealthChecks = devs.healthChecks()
	if !s.RunOnce {
		if err := addStats(s, &opts, cgroups, killed, m, &sopts); err != nil {
			return left, err
		}
	}
	agent, err := kubeletkit.New(opts)
	if err != nil {
		return left, err
	}
	if joins != nil {
		if err := joins.join(agent, s, log); err != nil {
			return left, err
		}
	}
	if len(opts.Sources) == 0 {
		if err := refuseToStopPods(ctx, s, rt.ListPods); err != nil {
			return left, err
		}
		warn(log, noSources+": no pods will run, and those that run are stopped")
	}
	if missing(s.StaticPodPath) {
		warn(log, errNoManifests.Error()+": "+s.StaticPodPath)
	}
	if s.RunOnce {
		return left, runOnce(ctx, s, agent, &broken)
	}
	listeners, err := listen(s)
	if err != nil {
		return left, err
	}
	n := node{Agent: agent, recent: pods, broken: &broken, manifests: s.StaticPodPath, root: s.RootDir,
		joins: joins, held: held}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	sopts.Streams = streams.New(agent, rt, streams.Options{
		Logger: sopts.Logger, IdleTimeout: cmp.Or(s.StreamingConnectionIdleTimeout.Duration, -1), // 0 is no limit
	})
	addLogs(s, n, &sopts)
	stop, stopped := control.NewStop(), false
	// The socket and the ports are components, because the agent checks and locks its directory
	// before it runs them: nothing answers for an agent that does not start.
	started := newReadiness(len(listeners) + 1)
	if err := agent.Add("socket for commands", func(ctx context.Context) error {
		socket, err := listenSocket(ctx, s.RootDir, log)
		if socket == nil {
			started.served()
			return err
		}
		return server.Serve(ctx, started.listener(socket), control.Handler(n, stop, sopts))
	}); err != nil {
		return left, err
	}
	g.Go(func() error {
		drain := func(ctx context.Context) error {
			if stop.ByPriority() {
				return agent.DrainByPriority(ctx, s.DrainPeriods())
			}
			return agent.Drain(ctx)
		}
		if stop.Run(ctx, drain) {
			log.Info("All pods have ended, as a client has requested")
			stopped = true
			cancel()
		}
		return nil
	})
	if s.DrainOnTerm {
		g.Go(func() error {
			drainOnTerm(ctx, signals, s, agent, log)
			cancel()
			return nil
		})
	}
	for _, l := range listeners {
		defer func() { _ = l.Close() }() // also if the agent does not start
	}
	for _, l := range listeners {
		l.Listener = started.listener(l.Listener)
		run, err := port(s, l, n, m, sopts)
		if err != nil {
			return left, err
		}
		if err := agent.Add("port "+l.Addr().String(), func(ctx context.Context) error {
			log := log
			if l.api == apiHealthz { // there is one by default
				log = log.V(1)
			}
			log.Info("Serving", "address", l.Addr().String(), "api", l.api)
			return run(ctx)
		}); err != nil {
			return left, err
		}
	}
	if err := agent.Add("systemd", func(ctx context.Context) error {
		return notifier.Run(ctx, started.ready, agent.Healthy, func(err error) { log.Error(err, "systemd") })
	}); err != nil {
		return left, err
	}
	display.SetNotes(func() []string { return problemLines(n.Problems()) })
	g.Go(func() error {
		display.Run(ctx, n.shownPods, agent.Synced)
		return nil
	})
	g.Go(func() error { return agent.Run(ctx) })
	err = g.Wait()
	if stopped && cgroups != nil {
		uids, failed := podDirs(s.RootDir)
		err = errors.Join(err, failed, removeCgroups(cgroups, uids))
	}
	return n.running(), err
}

// runOnce starts the pods, prints what became of them, and returns an error if one does
// not run.
func runOnce(ctx context.Context, s *config.Settings, agent *kubeletkit.Agent, broken *problems) error {
	if s.RunOnceTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.RunOnceTimeout,
			fmt.Errorf("the %s of --runonce-timeout are over", s.RunOnceTimeout))
		defer cancel()
	}
	report, err := agent.RunOnce(ctx)
	fmt.Print(terminal.EscapeLines(fmt.Sprint(report)))
	return errors.Join(err, broken.err())
}

// What a port serves.
const (
	apiHealthz  = "healthz"
	apiReadOnly = "read-only"
	apiKubelet  = "kubelet"
)

// listener is a port.
type listener struct {
	net.Listener
	api string
}

// port returns the component that serves a port.
func port(s *config.Settings, l listener, n node, m *metrics,
	opts server.Options) (func(context.Context) error, error) {
	switch l.api {
	case apiHealthz:
		return func(ctx context.Context) error {
			return server.Serve(ctx, l.Listener, server.Healthz(n.Agent, opts))
		}, nil
	case apiReadOnly:
		h := server.Measured(server.Handler(n.Agent, opts), m.requests, true)
		return func(ctx context.Context) error { return server.Serve(ctx, l.Listener, h) }, nil
	}
	api, err := newKubeletAPI(s, n.joins, m, opts.Logger)
	if err != nil {
		return nil, err
	}
	h := server.Kubelet(n.Agent, opts) // the pods that are desired, as kubelet lists them
	return func(ctx context.Context) error { return api.serve(ctx, l.Listener, h) }, nil
}

// listen opens the ports of the settings. If one cannot be opened, none is open.
func listen(s *config.Settings) ([]listener, error) {
	var out []listener
	open := func(host string, port int32, api, field, flag string) error {
		if port == 0 {
			return nil
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("opening the port of %s: %w, maybe by another agent; choose another with %s", field, err,
				flag)
		}
		if err != nil {
			return fmt.Errorf("opening the port of %s: %w", field, err)
		}
		out = append(out, listener{Listener: l, api: api})
		return nil
	}
	err := open(s.ReadOnlyAddress, s.ReadOnlyPort, apiReadOnly, "readOnlyPort", "--read-only-port, or none with 0")
	if err == nil {
		err = open(s.HealthzBindAddress, *s.HealthzPort, apiHealthz, "healthzPort", "--healthz-port, or none with 0")
	}
	if err == nil && *s.EnableServer {
		err = open(s.Address, s.Port, apiKubelet, "port", "--port, or none with --enable-server=false")
	}
	if err != nil {
		for _, l := range out {
			_ = l.Close()
		}
		return nil, err
	}
	return out, nil
}

// listenSocket opens the socket for commands. If it cannot be opened, the agent runs
// without; but another agent in the same directory is an error.
func listenSocket(ctx context.Context, rootDir string, log logr.Logger) (net.Listener, error) {
	path := filepath.Join(rootDir, config.SocketName)
	l, err := server.ListenUnix(ctx, path)
	switch {
	case err == nil:
		log.V(1).Info("Serving", "address", path, "commands", true)
		return l, nil
	case ctx.Err() != nil: // the agent stops
		return nil, nil
	case errors.Is(err, server.ErrSocketInUse):
		return nil, fmt.Errorf("opening the socket for commands: %w", err)
	default:
		log.Error(err, "Commands such as minikubelet pods will not find this agent", "socket", path)
		return nil, nil
	}
}
