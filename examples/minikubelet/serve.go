package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// serve runs the agent and its ports until the context ends.
func serve(ctx context.Context, s *settings, log logr.Logger, display *display) error {
	m, err := newMetrics()
	if err != nil {
		return err
	}
	var broken problems
	agent, closeRuntime, err := compose(ctx, s, log, display, m.pleg, broken.note)
	if err != nil {
		return err
	}
	defer closeRuntime()
	if s.RunOnce {
		if s.RunOnceTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, s.RunOnceTimeout, fmt.Errorf("the %s of --runonce-timeout are over", s.RunOnceTimeout))
			defer cancel()
		}
		report, err := agent.RunOnce(ctx)
		fmt.Print(report)
		return errors.Join(err, broken.err())
	}
	listeners, err := s.listen()
	if err != nil {
		return err
	}
	socket, err := listenSocket(ctx, s.RootDir, log)
	if err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if socket != nil {
		control := server.Control(agent, agent, server.Options{Logger: log.WithName("server")})
		g.Go(func() error { return server.Serve(ctx, socket, control) })
	}
	g.Go(func() error {
		display.run(ctx, agent.Pods, agent.Synced)
		return nil
	})
	for _, l := range listeners {
		h := server.Healthz(agent)
		if l.pods {
			h = server.Handler(agent, server.Options{Logger: log.WithName("server"), Metrics: m.handler})
		}
		log.Info("Serving", "address", l.Addr().String(), "pods", l.pods)
		g.Go(func() error { return server.Serve(ctx, l.Listener, h) })
	}
	g.Go(func() error { return agent.Run(ctx) })
	return g.Wait()
}

// problems are those of the manifests that last. The zero value has none.
type problems struct {
	mu     sync.Mutex
	byPath map[string]error
}

// note takes in that a manifest has a problem, or with nil that it has none anymore.
func (p *problems) note(path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.byPath, path)
		return
	}
	if p.byPath == nil {
		p.byPath = map[string]error{}
	}
	p.byPath[path] = err
}

// err is all of them, each with its path, and nil if there is none.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(p.byPath)) {
		errs = append(errs, fmt.Errorf("manifest %s: %w", path, p.byPath[path]))
	}
	return errors.Join(errs...)
}

// compose makes the agent that the settings describe, and that tells the sink and the metrics. It tells problem
// of manifests that cannot be used.
func compose(ctx context.Context, s *settings, log logr.Logger, sink status.Sink, metrics pleg.Metrics, problem func(path string, err error)) (agent *kubeletkit.Agent, closeRuntime func(), err error) {
	node, err := s.nodeName()
	if err != nil {
		return nil, nil, err
	}
	host, err := s.host(node)
	if err != nil {
		return nil, nil, err
	}
	reserved, err := s.reserved()
	if err != nil {
		return nil, nil, err
	}
	for name, q := range reserved {
		if total, ok := host.Allocatable[name]; ok {
			total.Sub(q)
			host.Allocatable[name] = total
		}
	}
	var sources []podconfig.Source
	manifests, objects := s.files(log, problem)
	if manifests != nil {
		sources = append(sources, manifests)
	}
	if s.StaticPodURL != "" {
		source, err := podhttp.New(s.StaticPodURL, podhttp.Options{
			Header: s.StaticPodURLHeader, CheckFrequency: s.HTTPCheckFrequency.Duration,
			Allow: manifest.AllowedRefs{Env: objects != nil, PullSecrets: objects != nil}, Logger: log.WithName("http"), Problem: problem,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--manifest-url or staticPodURL: %w", err)
		}
		sources = append(sources, source)
	}
	if len(sources) == 0 {
		log.Info("Warning: neither a directory of manifests (--pod-manifest-path, staticPodPath) nor a URL (--manifest-url, staticPodURL) is given: no pods will run, and those that run are stopped")
	}
	kept, err := s.checkpoint(log)
	if err != nil {
		return nil, nil, err
	}
	maxRestart := s.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	rt, err := cri.Dial(ctx, s.ContainerRuntimeEndpoint, cri.Options{
		ImageEndpoint:    s.ImageServiceEndpoint,
		CallTimeout:      s.RuntimeRequestTimeout.Duration,
		SerializePulls:   *s.SerializeImagePulls,
		MaxParallelPulls: int(ptr.Deref(s.MaxParallelImagePulls, 0)),
		Backoff:          plan.Backoff{Max: maxRestart},
		Logger:           log.WithName("cri"),
	})
	if err != nil {
		return nil, nil, err
	}
	closeRuntime = func() { _ = rt.Close() }
	agent, err = kubeletkit.New(kubeletkit.Options{
		NodeName:      node,
		RootDir:       s.RootDir,
		PodLogsDir:    s.PodLogsDir,
		Runtime:       rt,
		Sources:       sources,
		Objects:       objects,
		Checkpoint:    kept,
		StatusSink:    sink,
		Host:          host,
		Limits:        syncloop.Limits{MaxPods: int(s.MaxPods), Allocatable: host.Allocatable},
		SyncFrequency: s.SyncFrequency.Duration,
		GC:            gc.Policy{MinAge: s.MinContainerTTL, MaxPerContainer: deadToKeep(s.MaxDeadPerName)},
		Logger:        log,
		Override: kubeletkit.Overrides{
			Cache: kubeletkit.Replace[runtime.StatusCache](runtime.NewCache(rt, runtime.CacheOptions{InspectTimeout: s.RuntimeRequestTimeout.Duration})),
			PLEG: func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
				return s.pleg(rt, p.Cache, pleg.Options{Logger: log.WithName("pleg"), Metrics: metrics}), nil
			},
		},
	})
	if err != nil {
		closeRuntime()
		return nil, nil, err
	}
	return agent, closeRuntime, nil
}

// deadToKeep translates the flag, in which 0 keeps none, for gc, in which 0 is the
// default.
func deadToKeep(flag int32) int {
	if flag <= 0 {
		return -1
	}
	return int(flag)
}

// host is the machine as pods may know it.
func (s *settings) host(node string) (*runtime.Host, error) {
	h, err := kubeletkit.DetectHost()
	if err != nil {
		return nil, err
	}
	h.NodeName = node
	h.PodLogsDir = s.PodLogsDir
	h.ClusterDNS, h.ClusterDomain = s.ClusterDNS, s.ClusterDomain
	if s.ResolverConfig != nil {
		h.ResolvConf = *s.ResolverConfig
	}
	if s.NodeIP != "" {
		h.IPs = nil
		for text := range strings.SplitSeq(s.NodeIP, ",") {
			ip := net.ParseIP(strings.TrimSpace(text))
			if ip == nil {
				return nil, fmt.Errorf("--node-ip %q: not an IP address", text)
			}
			h.IPs = append(h.IPs, ip.String())
		}
	}
	if h.Allocatable == nil {
		h.Allocatable = v1.ResourceList{}
	}
	return h, nil
}

// listener is a port; pods says whether it serves more than /healthz.
type listener struct {
	net.Listener
	pods bool
}

// listen opens the ports. Either all are open, or none is and the error says why.
func (s *settings) listen() ([]listener, error) {
	var out []listener
	open := func(host string, port int32, pods bool, field, flag string) error {
		if port == 0 {
			return nil
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("opening the port of %s: %w, maybe by another agent; choose another with %s, or none with 0", field, err, flag)
		}
		if err != nil {
			return fmt.Errorf("opening the port of %s: %w", field, err)
		}
		out = append(out, listener{Listener: l, pods: pods})
		return nil
	}
	err := open(s.Address, s.ReadOnlyPort, true, "readOnlyPort", "--read-only-port")
	if err == nil {
		err = open(s.HealthzBindAddress, *s.HealthzPort, false, "healthzPort", "--healthz-port")
	}
	if err != nil {
		for _, l := range out {
			_ = l.Close()
		}
		return nil, err
	}
	return out, nil
}
