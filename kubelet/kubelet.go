package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/node/podsapi"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/intree"
	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
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
	ownLog   bool              // the log is that of the display
	notifier *systemd.Notifier // nil: nothing reports to systemd
	metrics  *metrics
	tracer   Tracer // nil: there is none
	runtime  runtime.Runtime
	// failed is closed when the embedded runtime has ended; nil: there is none.
	failed <-chan struct{}
	// embeddedLimits means that the embedded runtime enforces limits of pods.
	embeddedLimits bool
	cgroups        *cgroup.Pods // nil: pods have none
	agent          *kubeletkit.Agent
	node           local.Node
	joins          *member // nil: the kubelet is in no cluster
	server         server.Options
	begun          atomic.Bool
	closers        []func() error
}

// New composes a kubelet. It makes the settings of the machine and of the process that the configuration requests, and
// connects to the container runtime, which need not answer, or starts the embedded one. No pod starts and no port is
// opened before [Kubelet.Run]. The error names the field that is wrong with the options. A kubelet that is not run is
// to be closed.
func New(ctx context.Context, config *Config) (*Kubelet, error) {
	if config == nil || config.settings == nil {
		return nil, errors.New("kubelet: the configuration is nil; Load returns one")
	}
	settings, opts := *config.settings, config.opts
	if err := opts.validate(&settings); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k := &Kubelet{opts: opts, settings: &settings}
	k.log, k.display, k.ownLog = opts.logger(&settings)
	if opts.process.onNew != nil {
		k.notifier = opts.process.onNew(k.log)
	}
	for _, w := range settings.Warnings {
		warn(k.log, w)
	}
	if err := k.compose(ctx); err != nil {
		if closed := k.Close(); closed != nil {
			k.log.Error(closed, "A kubelet that cannot be made is not closed")
		}
		return nil, err
	}
	return k, nil
}

// Close ends the connection to the container runtime, and the embedded runtime. Containers go on running. It is for a
// kubelet that is not run: Run does the same at its end, and after a call of Run, Close does nothing. It is safe for
// concurrent use.
func (k *Kubelet) Close() error {
	if !k.begun.CompareAndSwap(false, true) {
		return nil
	}
	return k.close()
}

func (k *Kubelet) close() error {
	var errs []error
	for _, closer := range slices.Backward(k.closers) {
		errs = append(errs, closer())
	}
	k.closers = nil
	return errors.Join(errs...)
}

// Agent returns the agent.
func (k *Kubelet) Agent() *kubeletkit.Agent { return k.agent }

// compose makes the agent with its components. These declare what they come before and after, see [lifecycle.Ordered].
func (k *Kubelet) compose(ctx context.Context) error {
	s, log, has := k.settings, k.log, k.opts.has
	if err := k.openEmbedded(ctx); err != nil { // another agent in the root directory is found first
		return err
	}
	if err := prepareHost(s, log); err != nil {
		return err
	}
	s.StaticPodUIDs = staticPodUIDs(ctx, s, log)
	m, err := newMetrics(log.WithName("metrics"))
	if err != nil {
		return err
	}
	k.metrics = m
	for _, f := range s.Features() {
		m.setFeature(f.Name, f.Stage, f.Enabled)
	}
	if register := k.opts.RegisterMetrics; register != nil {
		if err := register(m.registry); err != nil {
			return fmt.Errorf("kubelet: field Options.RegisterMetrics: %w", err)
		}
	}
	var devs *nodeDevices
	if has(Devices) {
		if devs, err = newDevices(s, log.WithName("devices")); err != nil {
			return err
		}
		k.closers = append(k.closers, devs.close)
	}
	withClaims := has(DynamicResources) && hasDrivers(s)
	limits, err := k.limitsPods()
	if err != nil {
		return err
	}
	withDrivers := has(Storage) && hasDrivers(s)
	joins, err := newMember(s, m, devs, withClaims, withDrivers, func() []string {
		return s.DeclaredFeatures(limits, featuresOf(k.runtime))
	}, log)
	if err != nil {
		return err
	}
	tracer, err := k.newTracer(ctx, s)
	if err != nil {
		return err
	}
	k.tracer = tracer
	if err := k.openRuntime(ctx, joins); err != nil {
		return err
	}
	changed := func(pod runtime.PodRef) { k.display.Changed(pod) }
	if k.opts.process.onNew != nil { // the process is that of the kubelet
		memory := newReleaser(kubeletkit.ReleaseMemory)
		k.closers = append(k.closers, func() error { memory.stop(); return nil })
		changed = func(pod runtime.PodRef) { memory.noted(); k.display.Changed(pod) }
	}
	pods := recent.New(changed)
	logged := logEvents(slog.New(logr.ToSlogHandler(log)))
	broken := &local.Problems{}
	opts, err := agentOptions(s, k.runtime, hooks{
		sink: pods, measure: m.agent, problem: broken.Note,
		event: func(e runtime.Event) { pods.Event(e); logged(e); k.opts.Event.Emit(e) },
	}, log)
	if err != nil {
		return err
	}
	opts.Sources = append(opts.Sources, k.opts.Sources...)
	opts.Volumes.Plugins, opts.Prober.Handlers, opts.Override = k.opts.Volumes, k.opts.Probes, k.opts.Override
	opts.Volumes.Persistent = k.opts.PersistentVolumes
	var drivers *csi.Plugin
	if withDrivers {
		if drivers, err = newStorage(&opts, s, joins); err != nil {
			return err
		}
	}
	if has(Storage) {
		var targets scsi.Options
		if withDrivers {
			targets.Secret = joins.Storage().Secret
		}
		if err := addMounted(&opts, s, targets, log); err != nil {
			return err
		}
	}
	if tracer != nil {
		wrapSyncer(&opts, tracer)
	}
	if !has(ImageRecords) {
		opts.Images.Records = nil
	}
	if rt, ok := runtime.Optional[runtime.LogReopener](k.runtime); ok && has(LogRotation) {
		if err := joinLogs(&opts, s, rt); err != nil {
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
		if err := addShutdown(&opts, s); err != nil {
			return err
		}
	}
	if joins != nil {
		if err := joins.Configure(&opts); err != nil {
			return err
		}
		if withDrivers {
			opts.API.Claims = intree.Claims(opts.API.Claims)
		}
	}
	if has(Users) {
		if err := addUsers(&opts, s, k.features, joins); err != nil {
			return err
		}
	}
	place := &placement{}
	if has(Placement) {
		rt, ok := runtime.Optional[placementRuntime](k.runtime)
		if !ok && s.OnMachine() {
			return errors.New("kubelet: the container runtime cannot set the CPUs of a container")
		}
		if place, err = newPlacement(ctx, s, os.DirFS("/"), rt); err != nil {
			return err
		}
	}
	why := "cgroupsPerQOS is false"
	if !has(Cgroups) {
		why = "the kubelet has no cgroups of pods"
	}
	if err := joinCgroups(ctx, &opts, s, k.cgroups, why); err != nil {
		return err
	}
	opts.Join = append(opts.Join, volume.MemoryResizer{
		Refuse: s.RefuseVolumeResizes(func() bool { return host.Read().CgroupV1 })})
	if has(Eviction) {
		if err := addEvictions(&opts, s, k.runtime, k.cgroups, log); err != nil {
			return err
		}
	}
	var claims dynamicResources
	if withClaims {
		if claims, err = newDynamicResources(&opts, s, joins); err != nil {
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
	} else {
		opts.Join = append(opts.Join, withoutRun{held})
	}
	if has(PodsAPI) && s.PodsAPI() {
		api, err := podsapi.New(filepath.Join(s.RootDir, "pods-api", "pods-api.sock"),
			podsapi.Options{Request: m.pods.Requested})
		if err != nil {
			return err
		}
		opts.Join = append(opts.Join, api)
	}
	handlers := map[string]plugins.Handler{}
	claims.handle(handlers)
	handleStorage(handlers, drivers)
	if devs != nil {
		handlers[plugins.TypeDevice] = devs.plugins
	}
	if err := addPlugins(&opts, s, handlers, m); err != nil {
		return err
	}
	if rt, ok := runtime.Optional[runtime.PodCIDRSetter](k.runtime); ok {
		addPodCIDR(&opts, s, rt)
	}
	if k.opts.process.onNew != nil { // the threads are those of the process
		reserve, err := fillThreads(log)
		if err != nil {
			return err
		}
		opts.Join = append(opts.Join, reserve)
	}
	if err := prommetrics.RegisterNode(m.registry, opts.NodeName, k.opts.version().String()); err != nil {
		return err
	}
	k.server = k.serverOptions(opts.Host)
	k.server.HealthChecks = devs.healthChecks()
	if has(Stats) && !s.RunOnce {
		if err := addStats(s, &opts, k.cgroups, killed, m, &k.server); err != nil {
			return err
		}
	}
	opts.Join = append(opts.Join, k.opts.Join...)
	if f := k.opts.process.onJoin; f != nil {
		f(opts.Join)
	}
	if k.agent, err = kubeletkit.New(opts); err != nil {
		return err
	}
	if tracer != nil {
		store := k.agent.Parts().History
		run := func(ctx context.Context) error { return tracer.Run(ctx, store) }
		if err := k.agent.Add("tracing", run); err != nil {
			return err
		}
	}
	k.node = local.Node{Agent: k.agent, Recent: pods, Broken: broken, Manifests: s.StaticPodPath, Root: s.RootDir,
		Held: held, Components: opts.Join, Version: k.opts.version().String(), Object: k.nodeObject,
		Certificates: m.ends.list}
	if has(Eviction) {
		if k.node.Thresholds, err = s.Thresholds(); err != nil {
			return err
		}
	}
	k.joins = joins
	if joins != nil {
		return joins.add(k.agent, s, log)
	}
	return nil
}

// withoutRun is a component that does not run.
type withoutRun struct{ server *podresources.Server }

// Name implements [lifecycle.Component].
func (w withoutRun) Name() string { return w.server.Name() }

// Join implements [lifecycle.Joiner].
func (w withoutRun) Join(node lifecycle.Node) error { return w.server.Join(node) }

// openEmbedded starts the embedded runtime, if containers are its.
func (k *Kubelet) openEmbedded(ctx context.Context) error {
	if !k.settings.Embedded {
		return nil
	}
	rt, err := openEmbedded(ctx, k.settings, k.log)
	if err != nil {
		return err
	}
	k.failed, k.closers = rt.Done(), append(k.closers, rt.Close)
	limits, without := rt.LimitsPods(), "a network, read-only mounts"
	if !limits {
		without = "a network, limits, read-only mounts"
	}
	k.log.Info("Containers are processes of this machine; --container-runtime-endpoint gives a container runtime",
		"without", without)
	k.embeddedLimits = k.settings.Kubeconfig != "" && limits // the node object has it
	return nil
}

// limitsPods reports whether pods have cgroups that hold limits of their own.
func (k *Kubelet) limitsPods() (bool, error) {
	if k.settings.Embedded || !k.opts.has(Cgroups) {
		return k.embeddedLimits, nil
	}
	cgroups, err := k.settings.Cgroups(nil)
	return cgroups != nil && cgroups.Usable() == nil, err
}

// openRuntime connects to the container runtime, unless the program has one of its own, and wraps it.
func (k *Kubelet) openRuntime(ctx context.Context, joins *member) error {
	k.runtime = k.opts.Runtime
	if k.runtime == nil {
		rt, cgroups, err := dialRuntime(ctx, k.settings, joins, k.opts.has(Cgroups), k.metrics.cri, k.tracer, k.log)
		if err != nil {
			return err
		}
		k.runtime, k.cgroups, k.closers = rt, cgroups, append(k.closers, rt.Close)
	}
	if k.opts.WrapRuntime == nil {
		return nil
	}
	inner := k.runtime
	if k.runtime = k.opts.WrapRuntime(inner); k.runtime == nil {
		return errors.New("kubelet: field Options.WrapRuntime has returned nil")
	}
	if lost := lostAbilities(inner, k.runtime); len(lost) > 0 {
		return fmt.Errorf("kubelet: the runtime of field Options.WrapRuntime, a %T, loses abilities of that which it "+
			"wraps: %s; give it a method Unwrap() any that returns it", k.runtime, strings.Join(lost, ", "))
	}
	return nil
}

// lostAbilities returns the optional interfaces that are found on a runtime, and not through the one around it.
func lostAbilities(inner, outer any) (lost []string) {
	for name, has := range map[string]func(any) bool{
		"EventSource": can[runtime.EventSource], "ImageService": can[runtime.ImageService],
		"ImageStore": can[runtime.ImageStore], "Streamer": can[runtime.Streamer],
		"StreamLocator": can[runtime.StreamLocator], "UsageReporter": can[runtime.UsageReporter],
		"MetricsReporter": can[runtime.MetricsReporter], "DiskUsageReporter": can[runtime.DiskUsageReporter],
		"Checkpointer": can[runtime.Checkpointer], "CPUSetter": can[runtime.CPUSetter],
		"LogReopener": can[runtime.LogReopener], "FeatureReporter": can[runtime.FeatureReporter],
		"PodCIDRSetter": can[runtime.PodCIDRSetter],
	} {
		if has(inner) && !has(outer) {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return lost
}

func can[T any](rt any) bool {
	_, ok := runtime.Optional[T](rt)
	return ok
}

// features returns what the container runtime has reported of itself.
func (k *Kubelet) features() runtime.Features { return featuresOf(k.runtime) }

func featuresOf(rt runtime.Runtime) runtime.Features {
	if reporter, ok := runtime.Optional[runtime.FeatureReporter](rt); ok {
		return reporter.Features()
	}
	return runtime.Features{}
}

// Run runs the kubelet until ctx ends, or a client has ended all pods. The context of a process that SIGTERM has ended
// has the cause [ErrTerminated]: with --drain-on-term, the pods end first. With --runonce, Run returns when all pods
// run. Containers go on running. A second call, and one after Close, returns an error that wraps
// [runtime.ErrAlreadyRunning].
func (k *Kubelet) Run(ctx context.Context) error {
	if !k.begun.CompareAndSwap(false, true) {
		return fmt.Errorf("kubelet: %w", runtime.ErrAlreadyRunning)
	}
	left, err := k.run(ctx)
	err = errors.Join(err, k.close())
	s := k.settings
	if text := farewell(left, s.Program(), s.RootDir, endpointOf(s)); text != "" && k.opts.process.err != nil &&
		k.display.Interactive() {
		fmt.Fprintln(k.opts.process.err, text)
	} else if text != "" {
		k.log.Info(text)
	}
	return err
}

// run runs the agent and its ports until signals end. It returns what was running then.
func (k *Kubelet) run(signals context.Context) (left local.Running, err error) {
	s, log, agent, n := k.settings, k.log, k.agent, k.node
	ctx, cancel := drainsFirst(signals, s)
	defer cancel()
	if k.failed != nil {
		stop := make(chan struct{})
		var watch sync.WaitGroup
		defer watch.Wait()
		defer close(stop)
		watch.Go(func() {
			select {
			case <-k.failed:
				cancel()
			case <-stop:
			}
		})
	}
	if len(agent.Sources()) == 0 {
		err := refuseToStopPods(ctx, s, k.runtime.ListPods)
		switch {
		case err != nil && ctx.Err() != nil && !s.RunOnce:
			return left, nil // it was stopped while it started
		case err != nil:
			return left, err
		}
		warn(log, noSources+": no pods will run, and those that run are stopped")
	}
	if local.Missing(s.StaticPodPath) {
		warn(log, local.ErrNoManifests.Error()+": "+s.StaticPodPath)
	}
	if s.RunOnce {
		return left, k.runOnce(ctx)
	}
	var listeners []listener
	if k.opts.has(Server) {
		if listeners, err = listen(s); err != nil {
			return left, err
		}
		for _, l := range listeners {
			defer func() { _ = l.Close() }() // also if the agent does not start
		}
	}
	stop, started := control.NewStop(), newReadiness(len(listeners)+1)
	if err := k.addPorts(listeners, stop, started); err != nil {
		return left, err
	}
	g, ctx := errgroup.WithContext(ctx)
	stopped := false
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
	k.display.SetNotes(func() []string { return local.ProblemLines(n.Problems()) })
	g.Go(func() error {
		k.display.Run(ctx, n.ShownPods, agent.Synced)
		return nil
	})
	g.Go(func() error { return agent.Run(ctx) })
	err = g.Wait()
	if stopped && k.cgroups != nil {
		uids, failed := podDirs(s.RootDir)
		err = errors.Join(err, failed, removeCgroups(k.cgroups, uids))
	}
	return n.Running(), err
}

// addPorts adds the socket for commands, the ports and the reports to systemd. These are components, because the agent
// checks and locks its directory before it runs them: nothing answers for an agent that does not start.
func (k *Kubelet) addPorts(listeners []listener, stop *control.Stop, started *readiness) error {
	s, log, agent, n := k.settings, k.log, k.agent, k.node
	sopts := k.server
	sopts.Streams = streams.New(agent, k.runtime, streams.Options{
		Logger: sopts.Logger, IdleTimeout: cmp.Or(s.StreamingConnectionIdleTimeout.Duration, -1), // 0 is no limit
	})
	addLogs(s, n, &sopts)
	if err := agent.Add("socket for commands", func(ctx context.Context) error {
		socket, err := listenSocket(ctx, s, log)
		if socket == nil {
			started.served()
			return err
		}
		return server.Serve(ctx, started.listener(socket), control.Handler(n, stop, sopts))
	}); err != nil {
		return err
	}
	for _, l := range listeners {
		l.Listener = started.listener(l.Listener)
		run, err := port(s, l, n, k.joins, k.metrics, k.tracer, sopts)
		if err != nil {
			return err
		}
		if err := agent.Add("port "+l.Addr().String(), func(ctx context.Context) error {
			log := log
			if l.api == apiHealthz { // there is one by default
				log = log.V(1)
			}
			log.Info("Serving", "address", l.Addr().String(), "api", l.api)
			return run(ctx)
		}); err != nil {
			return err
		}
	}
	if k.notifier == nil {
		return nil
	}
	return agent.Add("systemd", func(ctx context.Context) error {
		return k.notifier.Run(ctx, started.ready, agent.Healthy, func(err error) { log.Error(err, "systemd") })
	})
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
	return errors.Join(err, k.node.Broken.Err())
}
