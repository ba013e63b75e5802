package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// Kubelet is an agent with all that its configuration requests. Make one with [New], and run it once.
type Kubelet struct {
	opts     Options
	settings *config.Settings
	log      logr.Logger
	display  *terminal.Display
	notifier *systemd.Notifier // nil: nothing reports to systemd
	metrics  *metrics
	runtime  runtime.Runtime
	// failed is closed when the embedded runtime has ended; nil: there is none.
	failed  <-chan struct{}
	cgroups *cgroup.Pods // nil: pods have none
	agent   *kubeletkit.Agent
	node    node
	server  server.Options
	begun   atomic.Bool
	closers []func() error
}

// New composes a kubelet. It makes the settings of the machine and of the process that the configuration requests, and
// connects to the container runtime, which need not answer, or starts the embedded one. No pod starts and no port is
// opened before [Kubelet.Run]. The error joins all that is wrong with the options. A kubelet that is not run is to be
// closed.
func New(ctx context.Context, config *Config, opts Options) (*Kubelet, error) {
	settings := *config.settings
	if err := opts.validate(&settings); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k := &Kubelet{opts: opts, settings: &settings}
	k.log, k.display = opts.logger(&settings)
	if opts.process.began != nil {
		k.notifier = opts.process.began(k.log)
	}
	for _, w := range settings.Warnings {
		warn(k.log, w)
	}
	if opts.Runtime != nil {
		settings.Embedded = true // its containers are none that the kernel has by a path that is known
	}
	if err := k.compose(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Close ends the connection to the container runtime, and the embedded runtime. Containers go on running. It is for a
// kubelet that is not run: [Kubelet.Run] closes it.
func (k *Kubelet) Close() error {
	var errs []error
	for _, closer := range slices.Backward(k.closers) {
		errs = append(errs, closer())
	}
	k.closers = nil
	return errors.Join(errs...)
}

// Agent returns the agent.
func (k *Kubelet) Agent() *kubeletkit.Agent { return k.agent }

// compose makes the agent with its components. Eviction comes before what decides what else a pod costs. Devices, CPUs
// and memory come after what refuses pods for other reasons.
func (k *Kubelet) compose(ctx context.Context) error {
	s, log, has := k.settings, k.log, k.opts.has
	if err := prepareHost(s, log); err != nil {
		return err
	}
	reserve, err := fillThreads(log)
	if err != nil {
		return err
	}
	m, err := newMetrics(log.WithName("metrics"))
	if err != nil {
		return err
	}
	k.metrics = m
	if register := k.opts.RegisterMetrics; register != nil {
		if err := register(m.registry); err != nil {
			return err
		}
	}
	var devs *nodeDevices
	if has(Devices) {
		if devs, err = newDevices(s, m); err != nil {
			return err
		}
	}
	withClaims := has(DynamicResources) && preparesClaims(s)
	joins, err := newMember(s, m, devs, withClaims, log)
	if err != nil {
		return err
	}
	if err := k.openRuntime(ctx, joins); err != nil {
		return err
	}
	if wrap := k.opts.WrapRuntime; wrap != nil {
		k.runtime = wrap(k.runtime)
	}
	changed := func(pod runtime.PodRef) { k.display.Changed(pod) }
	if k.opts.process.out != nil { // the process is that of the kubelet
		memory := newReleaser(releaseMemory)
		k.closers = append(k.closers, func() error { memory.stop(); return nil })
		changed = func(pod runtime.PodRef) { memory.noted(); k.display.Changed(pod) }
	}
	pods := recent.New(changed)
	logged := logEvents(slog.New(logr.ToSlogHandler(log)))
	broken := &problems{}
	opts, err := agentOptions(s, k.runtime, hooks{
		sink: pods, metrics: m.parts, problem: broken.note,
		event: func(e runtime.Event) { pods.Event(e); logged(e); k.opts.Event.Emit(e) },
	}, log)
	if err != nil {
		return err
	}
	k.addOptions(&opts)
	if rt, ok := runtime.Optional[runtime.LogReopener](k.runtime); ok && has(LogRotation) {
		if err := joinLogs(&opts, s, rt, m.logs); err != nil {
			return err
		}
	}
	var killed func(cgroup string) uint64
	if has(OOM) {
		if killed, err = addMemory(&opts, s, k.cgroups); err != nil {
			return err
		}
	}
	if has(Shutdown) {
		if err := addShutdown(&opts, s, m); err != nil {
			return err
		}
	}
	if joins != nil {
		if err := joins.Configure(&opts); err != nil {
			return err
		}
	}
	if has(Users) {
		if err := addUsers(&opts, s, k.features, joins); err != nil {
			return err
		}
	}
	place := &placement{}
	if has(Placement) {
		rt, _ := runtime.Optional[placementRuntime](k.runtime) // only processes of this machine are placed
		if place, err = newPlacement(ctx, s, rt, m, log); err != nil {
			return err
		}
	}
	if err := joinCgroups(ctx, &opts, s, k.cgroups, place); err != nil {
		return err
	}
	if has(Eviction) {
		if err := addEvictions(&opts, s, k.runtime, k.processes(), k.cgroups, m, log); err != nil {
			return err
		}
	}
	var claims dynamicResources
	if withClaims {
		if claims, err = newDynamicResources(&opts, s, joins, m, log); err != nil {
			return err
		}
	}
	if err := addProviders(&opts, s, joins, m, log); err != nil {
		return err
	}
	if err := place.join(&opts); err != nil {
		return err
	}
	devs.join(&opts)
	if !s.PodLevelResources() {
		withoutPodLevelResources(&opts)
	}
	sources := slices.Concat(place.sources(), []podresources.Source{claims.held()}, devs.held())
	held, err := newPodResources(s, sources, m)
	if err != nil {
		return err
	}
	if has(PodResources) {
		opts.Join = append(opts.Join, held)
	}
	handlers := map[string]plugins.Handler{}
	claims.handle(handlers)
	if devs != nil {
		handlers[plugins.TypeDevice] = devs
	}
	if err := addPlugins(&opts, s, handlers, m); err != nil {
		return err
	}
	if rt, ok := runtime.Optional[runtime.PodCIDRSetter](k.runtime); ok {
		addPodCIDR(&opts, s, rt)
	}
	opts.Join = append(opts.Join, reserve)
	k.server = k.serverOptions(opts.Host)
	k.server.HealthChecks = devs.healthChecks()
	if has(Stats) && !s.RunOnce {
		if err := addStats(s, &opts, k.cgroups, killed, m, k.opts.version(), &k.server); err != nil {
			return err
		}
	}
	opts.Join = append(opts.Join, k.opts.Join...)
	if k.agent, err = kubeletkit.New(opts); err != nil {
		return err
	}
	k.node = node{Agent: k.agent, recent: pods, broken: broken, manifests: s.StaticPodPath, root: s.RootDir,
		joins: joins, held: held, hasSources: len(opts.Sources) > 0}
	if joins != nil {
		return joins.join(k.agent, s, log)
	}
	return nil
}

// addOptions adds what the program adds to the agent.
func (k *Kubelet) addOptions(opts *kubeletkit.Options) {
	if k.opts.Runtime != nil {
		opts.GC.Images = imagePolicy(k.settings)
	}
	if !k.opts.has(ImageRecords) {
		opts.Images.Records = nil
	}
	opts.Sources = append(opts.Sources, k.opts.Sources...)
	opts.Plugins = k.opts.Plugins
	opts.Override = k.opts.Override
}

// processes reports whether the containers are those of the embedded runtime.
func (k *Kubelet) processes() bool { return k.settings.Embedded && k.opts.Runtime == nil }

// openRuntime connects to the container runtime.
func (k *Kubelet) openRuntime(ctx context.Context, joins *member) error {
	if k.runtime = k.opts.Runtime; k.runtime != nil {
		return nil
	}
	if k.processes() {
		k.log.Info("Containers are processes of this machine, since no --container-runtime-endpoint is given")
		rt, err := openEmbedded(ctx, k.settings, k.log)
		if err != nil {
			return err
		}
		k.failed, k.closers = rt.Done(), append(k.closers, rt.Close)
	}
	rt, cgroups, err := dialRuntime(ctx, k.settings, joins, k.opts.has(Cgroups), k.metrics.cri, k.log)
	if err != nil {
		return err
	}
	k.runtime, k.cgroups, k.closers = rt, cgroups, append(k.closers, rt.Close)
	return nil
}

// features returns what the container runtime has reported of itself.
func (k *Kubelet) features() runtime.Features {
	if rt, ok := runtime.Optional[runtime.FeatureReporter](k.runtime); ok {
		return rt.Features()
	}
	return runtime.Features{}
}

// Run runs the kubelet until ctx ends, or a client has ended all pods. The context of a process that SIGTERM has ended
// has the cause [ErrTerminated]: with --drain-on-term, the pods end first. With --runonce, Run returns when all pods
// run. Containers go on running. A second call returns an error that wraps [runtime.ErrAlreadyRunning].
func (k *Kubelet) Run(ctx context.Context) error {
	if !k.begun.CompareAndSwap(false, true) {
		return fmt.Errorf("kubelet: %w", runtime.ErrAlreadyRunning)
	}
	signals := ctx
	ctx, cancel := drainsFirst(signals, k.settings)
	defer cancel()
	if k.failed != nil {
		go func() {
			select {
			case <-k.failed:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	left, err := k.run(ctx, signals)
	cancel()
	err = errors.Join(err, k.Close())
	if text := left.farewell(k.opts.program(), k.settings); text != "" && k.opts.process.err != nil &&
		k.display.Interactive() {
		fmt.Fprintln(k.opts.process.err, text)
	} else if text != "" {
		k.log.Info(text)
	}
	return err
}

// run runs the agent and its ports until ctx or signals end. It returns what was running then.
func (k *Kubelet) run(ctx, signals context.Context) (left running, err error) {
	s, log, agent, n := k.settings, k.log, k.agent, k.node
	if !n.hasSources {
		if err := refuseToStopPods(ctx, s, k.runtime.ListPods); err != nil {
			return left, err
		}
		warn(log, noSources+": no pods will run, and those that run are stopped")
	}
	if missing(s.StaticPodPath) {
		warn(log, errNoManifests.Error()+": "+s.StaticPodPath)
	}
	if s.RunOnce {
		return left, k.runOnce(ctx)
	}
	var listeners []listener
	if k.opts.has(Server) {
		if listeners, err = listen(s); err != nil {
			return left, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	sopts := k.server
	sopts.Streams = streams.New(agent, k.runtime, streams.Options{
		Logger: sopts.Logger, IdleTimeout: cmp.Or(s.StreamingConnectionIdleTimeout.Duration, -1), // 0 is no limit
	})
	addLogs(s, n, &sopts)
	stop, stopped := control.NewStop(), false
	// The socket and the ports are components, because the agent checks and locks its directory
	// before it runs them: nothing answers for an agent that does not start.
	started := newReadiness(len(listeners) + 1)
	if err := agent.Add("socket for commands", func(ctx context.Context) error {
		socket, err := listenSocket(ctx, s, log)
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
		run, err := port(s, l, n, k.metrics, sopts)
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
	if k.notifier != nil {
		if err := agent.Add("systemd", func(ctx context.Context) error {
			return k.notifier.Run(ctx, started.ready, agent.Healthy, func(err error) { log.Error(err, "systemd") })
		}); err != nil {
			return left, err
		}
	}
	k.display.SetNotes(func() []string { return problemLines(n.Problems()) })
	g.Go(func() error {
		k.display.Run(ctx, n.shownPods, agent.Synced)
		return nil
	})
	g.Go(func() error { return agent.Run(ctx) })
	err = g.Wait()
	if stopped && k.cgroups != nil {
		uids, failed := podDirs(s.RootDir)
		err = errors.Join(err, failed, removeCgroups(k.cgroups, uids))
	}
	return n.running(), err
}

// runOnce starts the pods, shows what became of them, and returns an error if one does
// not run.
func (k *Kubelet) runOnce(ctx context.Context) error {
	if limit := k.settings.RunOnceTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the %s of --runonce-timeout are over", limit))
		defer cancel()
	}
	report, err := k.agent.RunOnce(ctx)
	if text := fmt.Sprint(report); k.opts.process.out != nil {
		fmt.Fprint(k.opts.process.out, terminal.EscapeLines(text))
	} else {
		k.log.Info("Pods were started once", "report", text)
	}
	return errors.Join(err, k.node.broken.err())
}
