package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/server"
)

// Server are the flags of the ports that kubelet does not have.
type Server struct {
	// TokenAuthFile has bearer tokens of clients, RBACFile what clients may do; see package
	// server/auth.
	TokenAuthFile, RBACFile string
	// ReadOnlyAddress is the address of the read-only port.
	ReadOnlyAddress string
}

// Modes of authorization, as in kubelet. "" is that of a node without an API server: members of
// system:masters may do everything, and others what RBACFile allows.
const (
	AlwaysAllow = "AlwaysAllow"
	Webhook     = "Webhook"
)

// addServerFlags binds the flags of the ports.
func (s *Settings) addServerFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Address, "address", s.Address, "address that --port is bound to, and if it is given "+
		"--read-only-port")
	fs.Int32Var(&s.Port, "port", s.Port, "port of the kubelet's API, with TLS, authentication and authorization; "+
		"without --kubeconfig it is opened if there is a way to authenticate clients, such as --client-ca-file")
	fs.BoolVar(s.EnableServer, "enable-server", *s.EnableServer, "open --port")
	fs.Int32Var(&s.ReadOnlyPort, "read-only-port", s.ReadOnlyPort, "port of /healthz, /pods and /metrics, without "+
		"authentication, on 127.0.0.1 unless --address is given; 0 for none")
	fs.Int32Var(s.HealthzPort, "healthz-port", *s.HealthzPort, "port of /healthz alone; 0 for none")
	fs.StringVar(&s.HealthzBindAddress, "healthz-bind-address", s.HealthzBindAddress,
		"address that the healthz port is bound to")

	fs.StringVar(&s.TLSCertFile, "tls-cert-file", s.TLSCertFile, "certificate of --port in PEM (default: one that "+
		"signs itself, in --cert-dir)")
	fs.StringVar(&s.TLSPrivateKeyFile, "tls-private-key-file", s.TLSPrivateKeyFile, "key of --tls-cert-file")
	fs.StringVar(&s.TLSMinVersion, "tls-min-version", s.TLSMinVersion,
		"lowest version of TLS: VersionTLS12 or VersionTLS13 (default: VersionTLS12)")
	fs.StringSliceVar(&s.TLSCipherSuites, "tls-cipher-suites", s.TLSCipherSuites,
		"cipher suites of TLS 1.2 (default: those of Go)")
	fs.BoolVar(&s.ServerTLSBootstrap, "rotate-server-certificates", s.ServerTLSBootstrap,
		"request the certificate of --port from the cluster, and a new one when it is about to expire")
	fs.BoolVar(s.EnableDebuggingHandlers, "enable-debugging-handlers", *s.EnableDebuggingHandlers,
		"serve logs of containers and commands in them on --port")
	fs.BoolVar(&s.EnableContentionProfiling, "contention-profiling", s.EnableContentionProfiling,
		"measure where the agent waits for locks, for /debug/pprof/block")
	fs.DurationVar(&s.StreamingConnectionIdleTimeout.Duration, "streaming-connection-idle-timeout",
		s.StreamingConnectionIdleTimeout.Duration, "time after which a session of exec, attach or port-forward ends "+
			"in which nothing is sent; 0 for no limit")

	authn, authz := &s.Authentication, &s.Authorization
	fs.StringVar(&authn.X509.ClientCAFile, "client-ca-file", authn.X509.ClientCAFile,
		"certificate authorities in PEM that sign the certificates of clients of --port")
	fs.BoolVar(authn.Anonymous.Enabled, "anonymous-auth", *authn.Anonymous.Enabled,
		"let clients of --port without credentials be system:anonymous")
	fs.Var(optionalBool{&authn.Webhook.Enabled}, "authentication-token-webhook",
		"have the API server review bearer tokens of clients of --port (default true with --kubeconfig)")
	fs.Lookup("authentication-token-webhook").NoOptDefVal = "true"
	fs.DurationVar(&authn.Webhook.CacheTTL.Duration, "authentication-token-webhook-cache-ttl",
		authn.Webhook.CacheTTL.Duration, "time that a reviewed token is valid")
	fs.StringVar(&authz.Mode, "authorization-mode", authz.Mode, "AlwaysAllow or Webhook, in which the API server "+
		"reviews requests to --port (default: Webhook with --kubeconfig, else only system:masters are allowed)")
	fs.StringVar(&s.TokenAuthFile, "token-auth-file", "", "bearer tokens of clients of --port, with lines of "+
		"token,user,uid,\"group,...\"; kubelet has no such flag")
	fs.StringVar(&s.RBACFile, "authorization-rbac-file", "", "ClusterRoles and ClusterRoleBindings for clients of "+
		"--port, in place of --authorization-mode; kubelet has no such flag")
	fs.DurationVar(&authz.Webhook.CacheAuthorizedTTL.Duration, "authorization-webhook-cache-authorized-ttl",
		authz.Webhook.CacheAuthorizedTTL.Duration, "time that a reviewed permission is valid")
	fs.DurationVar(&authz.Webhook.CacheUnauthorizedTTL.Duration, "authorization-webhook-cache-unauthorized-ttl",
		authz.Webhook.CacheUnauthorizedTTL.Duration, "time that a refusal is valid")
}

// serverDefaults are kubelet's, except those that depend on other settings, see resolveServer.
func serverDefaults(c *KubeletConfiguration) {
	def(&c.Address, "0.0.0.0")
	def(&c.Port, 10250)
	def(&c.HealthzBindAddress, "127.0.0.1")
	def(&c.HealthzPort, ptr.To[int32](10248))
	def(&c.EnableServer, ptr.To(true))
	def(&c.EnableDebuggingHandlers, ptr.To(true))
	def(&c.EnableProfilingHandler, ptr.To(true))
	def(&c.EnableSystemLogHandler, ptr.To(true))
	def(&c.EnableSystemLogQuery, ptr.To(false))
	def(&c.EnableDebugFlagsHandler, ptr.To(true))
	def(&c.StreamingConnectionIdleTimeout.Duration, 4*time.Hour)
	def(&c.Authentication.Anonymous.Enabled, ptr.To(false))
	def(&c.Authentication.Webhook.CacheTTL.Duration, 2*time.Minute)
	def(&c.Authorization.Webhook.CacheAuthorizedTTL.Duration, 5*time.Minute)
	def(&c.Authorization.Webhook.CacheUnauthorizedTTL.Duration, 30*time.Second)
}

// resolveServer sets what depends on several settings. fields are those of the files.
func (s *Settings) resolveServer(fs *pflag.FlagSet, fields []string) {
	s.ReadOnlyAddress = "127.0.0.1"
	if fs.Changed("address") || slices.Contains(fields, "address") {
		s.ReadOnlyAddress = s.Address
	}
	s.warnLegacy(fs, fields)
	authn := &s.Authentication
	if authn.Webhook.Enabled == nil {
		authn.Webhook.Enabled = ptr.To(s.Kubeconfig != "")
	}
	if s.Authorization.Mode == "" && s.Kubeconfig != "" && s.RBACFile == "" {
		s.Authorization.Mode = Webhook
	}
	canAuthenticate := s.Kubeconfig != "" || authn.X509.ClientCAFile != "" || s.TokenAuthFile != "" ||
		*authn.Anonymous.Enabled
	if *s.EnableServer && !canAuthenticate {
		if fs.Changed("port") || slices.Contains(fields, "port") {
			s.Warnings = append(s.Warnings, fmt.Sprintf("port %d is not opened: without --kubeconfig, "+
				"--client-ca-file, --token-auth-file or --anonymous-auth no client could be authenticated", s.Port))
		}
		*s.EnableServer = false
	}
	if *s.EnableServer && *authn.Anonymous.Enabled && s.Authorization.Mode == AlwaysAllow {
		s.Warnings = append(s.Warnings, fmt.Sprintf("everybody who reaches port %d can run commands in all "+
			"containers: --anonymous-auth with --authorization-mode=AlwaysAllow", s.Port))
	}
}

// warnLegacy adds a warning for what a kubelet without a configuration file has open, and this agent has not: kubelet
// keeps the defaults that its flags once had (applyLegacyDefaults).
func (s *Settings) warnLegacy(fs *pflag.FlagSet, fields []string) {
	if s.ConfigFile != "" || s.program.Configuration != nil || !s.OnMachine() || s.RunOnce {
		return
	}
	given := func(field string, flags ...string) bool {
		return slices.ContainsFunc(flags, fs.Changed) || slices.Contains(fields, field)
	}
	var open []string
	if !given("readOnlyPort", "read-only-port") {
		open = append(open, "--read-only-port=10255")
	}
	if *s.EnableServer && !given("authentication", "anonymous-auth") {
		open = append(open, "--anonymous-auth")
	}
	if *s.EnableServer && !given("authorization", "authorization-mode", "authorization-rbac-file") {
		open = append(open, "--authorization-mode=AlwaysAllow")
	}
	if len(open) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("--config: without it, a kubelet has %s, and everybody on the network "+
			"can read or control its pods; this agent has that only if it is given. A file with --config, also one "+
			"without settings, is the same in both, and ends this warning", strings.Join(open, " ")))
	}
}

// validateServer returns what is wrong with the settings of the ports.
func (s *Settings) validateServer() (errs []error) {
	if s.ReadOnlyPort < 0 || s.ReadOnlyPort > 65535 {
		errs = append(errs, fmt.Errorf("readOnlyPort %d: must be between 0 and 65535", s.ReadOnlyPort))
	}
	if p := *s.HealthzPort; p < 0 || p > 65535 {
		errs = append(errs, fmt.Errorf("healthzPort %d: must be between 0 and 65535", p))
	}
	if !*s.EnableServer {
		return errs
	}
	if s.Port < 1 || s.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d: must be between 1 and 65535; enableServer: false closes it", s.Port))
	}
	if net.ParseIP(s.Address) == nil {
		errs = append(errs, fmt.Errorf("address %q: not an IP address", s.Address))
	}
	if (s.TLSCertFile == "") != (s.TLSPrivateKeyFile == "") {
		errs = append(errs, errors.New("tlsCertFile and tlsPrivateKeyFile belong together"))
	}
	if s.ServerTLSBootstrap && s.TLSCertFile != "" {
		errs = append(errs,
			errors.New("serverTLSBootstrap: the certificate is that of tlsCertFile; give one of the two"))
	}
	if s.ServerTLSBootstrap && s.Kubeconfig == "" {
		errs = append(errs, errors.New("serverTLSBootstrap: there is no cluster to request a certificate from "+
			"without --kubeconfig"))
	}
	if *s.Authentication.Webhook.Enabled && s.Kubeconfig == "" {
		errs = append(errs, errors.New("authentication.webhook.enabled: there is no API server to review tokens "+
			"without --kubeconfig"))
	}
	switch s.Authorization.Mode {
	case "", AlwaysAllow:
	case Webhook:
		if s.Kubeconfig == "" {
			errs = append(errs, errors.New("authorization.mode Webhook: there is no API server to review requests "+
				"without --kubeconfig"))
		}
	default:
		errs = append(errs, fmt.Errorf("authorization.mode %q: must be AlwaysAllow or Webhook", s.Authorization.Mode))
	}
	if s.RBACFile != "" && s.Authorization.Mode != "" {
		errs = append(errs,
			fmt.Errorf("authorization.mode %s: --authorization-rbac-file is in its place; give one of the two",
				s.Authorization.Mode))
	}
	for field, ttl := range map[string]time.Duration{
		"authentication.webhook.cacheTTL":            s.Authentication.Webhook.CacheTTL.Duration,
		"authorization.webhook.cacheAuthorizedTTL":   s.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		"authorization.webhook.cacheUnauthorizedTTL": s.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	} {
		if ttl < 0 {
			errs = append(errs, fmt.Errorf("%s %s: must not be negative", field, ttl))
		}
	}
	if _, err := s.TLS(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// TLS returns the versions, cipher suites and curves that are allowed.
func (s *Settings) TLS() (opts server.TLSOptions, err error) {
	if opts.MinVersion, err = cliflag.TLSVersion(s.TLSMinVersion); err != nil {
		return opts, fmt.Errorf("tlsMinVersion: %w", err)
	}
	if opts.MinVersion < tls.VersionTLS12 {
		return opts, fmt.Errorf("tlsMinVersion %s: must be VersionTLS12 or VersionTLS13", s.TLSMinVersion)
	}
	if opts.CipherSuites, err = cliflag.TLSCipherSuites(s.TLSCipherSuites); err != nil {
		return opts, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	for _, curve := range s.TLSCurvePreferences {
		if curve <= 0 || curve > math.MaxUint16 {
			return opts, fmt.Errorf("tlsCurvePreferences %d: not the ID of a curve", curve)
		}
		opts.Curves = append(opts.Curves, tls.CurveID(curve))
	}
	return opts, nil
}

// optionalBool is a switch that stays nil if it was not given.
type optionalBool struct{ target **bool }

func (o optionalBool) String() string {
	if o.target == nil || *o.target == nil {
		return ""
	}
	return strconv.FormatBool(**o.target)
}

// Set implements [pflag.Value].
func (o optionalBool) Set(text string) error {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return err
	}
	*o.target = &b
	return nil
}

// Type implements [pflag.Value].
func (optionalBool) Type() string { return "bool" }
