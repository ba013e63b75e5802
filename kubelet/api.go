package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"strconv"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/credentials"
	"github.com/kubeletkit/kubeletkit/cluster/reviews"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
	"github.com/kubeletkit/kubeletkit/server/profiles"
)

// serverOptions returns the options of the ports and of the socket.
func (k *Kubelet) serverOptions(host *runtime.Host) server.Options {
	s, m, display := k.settings, k.metrics, k.display
	opts := server.Options{
		Logger: k.log.WithName("server"), Metrics: m.handler, ProbeMetrics: m.probes,
		LogHealthy: display.LogHealthy, HealthChecked: m.health.HealthChecked, SLIMetrics: m.slis,
		RunningPods: k.runtime.ListPods,
		Config: func() (any, error) {
			verbosity := s.Verbosity
			if k.ownLog {
				verbosity = display.Verbosity()
			}
			return s.Effective(config.Detected{Verbosity: verbosity, CgroupDriver: k.features().CgroupDriver,
				ResolvConf: host.ResolvConf})
		},
		AllocatedPods: s.AllocatedPods(),
		Flags:         func() map[string]string { return s.FlagValues },
		Version:       k.opts.version().String(),
		Requests:      m.requests,
		NoDebugging:   !*s.EnableDebuggingHandlers,
	}
	if *s.EnableProfilingHandler {
		opts.Profiles = profiles.Handler()
		if s.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	}
	if *s.EnableDebugFlagsHandler && k.ownLog {
		opts.SetVerbosity = func(level string) error {
			v, err := strconv.Atoi(level)
			if err == nil && v < 0 {
				err = errors.New("must not be negative")
			}
			if err != nil {
				return fmt.Errorf("verbosity %q: %w", level, err)
			}
			display.SetVerbosity(v)
			return nil
		}
	}
	return opts
}

// addLogs adds the logs of the node, checkpoints of containers and histories of pods.
func addLogs(s *config.Settings, n local.Node, opts *server.Options) {
	if *s.EnableSystemLogHandler {
		opts.Logs = server.NodeLogs(server.NodeLogsOptions{Query: *s.EnableSystemLogQuery, Logger: opts.Logger})
	}
	if rt, ok := runtime.Optional[runtime.Checkpointer](n.Parts().Runtime); ok {
		opts.Checkpoint = server.Checkpoint(n, rt, filepath.Join(s.RootDir, "checkpoints"))
	}
	opts.History = server.History(n, server.Histories[history.Entry]{
		Entries: n.History().Entries,
		Gone: func(namespace, name string) (types.UID, bool) {
			var last history.Pod
			for _, p := range n.History().Pods() {
				if p.Namespace == namespace && p.Name == name && !p.GoneAt.Before(last.GoneAt) {
					last = p
				}
			}
			return last.UID, last.UID != ""
		},
	})
}

// newGuard returns the guard of the port for the API server. If there is a client, its API server
// reviews tokens and requests.
func newGuard(s *config.Settings, client kubernetes.Interface, log logr.Logger) (*auth.Guard, error) {
	name, err := s.NodeName()
	if err != nil {
		return nil, err
	}
	opts := auth.Options{NodeName: name, Anonymous: *s.Authentication.Anonymous.Enabled, Logger: log}
	if file := s.Authentication.X509.ClientCAFile; file != "" {
		ca, err := auth.NewClientCA(file, log)
		if err != nil {
			return nil, err
		}
		opts.Authenticators = append(opts.Authenticators, ca)
	}
	if file := s.TokenAuthFile; file != "" {
		tokens, err := auth.NewTokenFile(file, log)
		if err != nil {
			return nil, err
		}
		opts.Authenticators = append(opts.Authenticators, tokens)
	}
	if *s.Authentication.Webhook.Enabled {
		opts.Authenticators = append(opts.Authenticators,
			reviews.NewTokens(client, reviews.TokensOptions{TTL: s.Authentication.Webhook.CacheTTL.Duration}))
	}
	switch s.Authorization.Mode {
	case config.AlwaysAllow:
		opts.Authorizer = auth.AlwaysAllow{}
	case config.Webhook:
		ttls := s.Authorization.Webhook
		opts.Authorizer = reviews.NewAccess(client,
			reviews.AccessOptions{AuthorizedTTL: ttls.CacheAuthorizedTTL.Duration,
				UnauthorizedTTL: ttls.CacheUnauthorizedTTL.Duration})
	default:
		opts.Authorizer = auth.SystemMasters{}
	}
	if file := s.RBACFile; file != "" {
		rbac, err := auth.NewRBACFile(file, log)
		if err != nil {
			return nil, err
		}
		opts.Authorizer = auth.AnyOf{auth.SystemMasters{}, rbac}
	}
	return auth.New(opts)
}

// reviewClient returns a client for reviews and serving certificates, with a budget of its own:
// strangers can cause reviews.
func (m *member) reviewClient(s *config.Settings) (kubernetes.Interface, error) {
	limited := restConfig(s, m.metrics, m.credentials.Config())
	budget := apiBudget(s)
	limited.QPS, limited.Burst = budget.QPS, budget.Burst
	return kubernetes.NewForConfig(limited)
}

// addresses returns the addresses of the node object; none while there is no such object.
func (m *member) addresses() []v1.NodeAddress {
	if m == nil || m.Object() == nil {
		return nil
	}
	return m.Object().Status.Addresses
}

// kubeletAPI is the port of kubelet's API.
type kubeletAPI struct {
	guard   *auth.Guard
	tls     server.TLSOptions
	serving credentials.ServingOptions
	metrics *metrics
	node    string
	log     logr.Logger
}

// newKubeletAPI returns the port that the settings describe. It makes no connection.
func newKubeletAPI(s *config.Settings, joins *member, m *metrics, log logr.Logger) (*kubeletAPI, error) {
	var client kubernetes.Interface
	if joins != nil {
		var err error
		if client, err = joins.reviewClient(s); err != nil {
			return nil, fmt.Errorf("client for reviews: %w", err)
		}
	}
	a := &kubeletAPI{metrics: m, log: log}
	var err error
	if a.node, err = s.NodeName(); err != nil {
		return nil, err
	}
	if a.guard, err = newGuard(s, client, log); err != nil {
		return nil, err
	}
	if a.tls, err = s.TLS(); err != nil {
		return nil, err
	}
	a.tls.Logger = log
	a.serving = credentials.ServingOptions{CertFile: s.TLSCertFile, KeyFile: s.TLSPrivateKeyFile, CertDir: s.CertDir,
		Logger: log}
	measured, err := prommetrics.NewServingCertificate(m.registry)
	if err != nil {
		return nil, err
	}
	a.serving.Metrics = m.ends.of("serving", measured)
	if s.ServerTLSBootstrap {
		a.serving.Client, a.serving.Addresses, a.serving.DNSOnly = client, joins.addresses, s.DNSOnlyCertificates()
	}
	return a, nil
}

// serve serves until ctx ends. A certificate that signs itself is made here, when the agent has
// locked its directory.
func (a *kubeletAPI) serve(ctx context.Context, l net.Listener, h http.Handler) error {
	serving, err := credentials.LoadServing(a.node, a.serving)
	if err != nil {
		return err
	}
	opts := a.tls
	opts.GetCertificate = serving.GetCertificate
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return serving.Run(ctx) })
	g.Go(func() error {
		return server.ServeTLS(ctx, l, server.Measured(a.guard.Protect(h), a.metrics.requests, false), opts)
	})
	return g.Wait()
}
