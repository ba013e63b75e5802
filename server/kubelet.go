package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of the handlers. The zero value is valid: a handler that needs
// something that is nil does not exist, so that its paths have status 404.
type Options struct {
	// Logger receives errors of connections. Default: that of package slog.
	Logger logr.Logger
	// Metrics handles GET /metrics of [Handler], for example a handler of promhttp. If nil,
	// the path does not exist.
	Metrics http.Handler
	// ProbeMetrics handles GET /metrics/probes of [Handler], where kubelet has the metrics
	// with labels for each container. If nil, the path does not exist.
	ProbeMetrics http.Handler
	// LogHealthy is the check /healthz/log: it returns an error while logs cannot be written. It
	// must not block, and is called concurrently. If nil, the check is "ok".
	LogHealthy func() error
	// HealthChecks are further checks of /healthz, such as kubelet's "device-plugin": the method Healthy of the server
	// of device plugins. Default: none.
	HealthChecks []HealthCheck
	// HealthChecked is called for each check, such as "syncloop", that a request for all checks of
	// /healthz has run, with its result: the method of a *prommetrics.SLIs. It must not block, and
	// is called concurrently. If nil, results are discarded. SLIMetrics handles GET /metrics/slis,
	// kubelet's page of these results, for example the Handler of prommetrics. If nil, the path
	// does not exist.
	HealthChecked func(check string, err error)
	SLIMetrics    http.Handler
	// Stats returns the usage of the node and its pods for /stats/summary of [Handler] as JSON, a Summary of
	// k8s.io/kubelet/pkg/apis/stats/v1alpha1, or only its CPU, memory and swap: the method Summary of a
	// *stats.Collector. It is called concurrently; the handlers do not change the result. ResourceMetrics handles GET
	// /metrics/resource, and CadvisorMetrics GET /metrics/cadvisor, for example handlers of package statsmetrics. If
	// nil, the paths do not exist.
	Stats                            func(ctx context.Context, onlyCPUAndMemory bool) ([]byte, error)
	ResourceMetrics, CadvisorMetrics http.Handler

	// Streams handles /exec/, /attach/ and /portForward/ of [Kubelet] and [Control], for
	// example Handlers of package server/streams. If nil, the paths do not exist.
	Streams http.Handler

	// The following are for [Kubelet] only.

	// RunningPods lists the pods of the runtime for GET /runningpods, see [RunningPods].
	RunningPods func(context.Context) ([]*runtime.Pod, error)
	// AllocatedPods has GET /allocatedPods answer with the pods as Pods of the agent has them, that is with the
	// resources that are allocated, without their statuses and those that have ended.
	AllocatedPods bool
	// Config returns the configuration for GET /configz, see [Configz].
	Config func() (any, error)
	// Flags returns the flags for GET /flagz, see [Flagz].
	Flags func() map[string]string
	// Version is the version of the program for GET /statusz. If empty, the path does not exist.
	Version string
	// Profiles handles GET /debug/pprof/, for example Handler of package server/profiles.
	Profiles http.Handler
	// Logs handles /logs/, see [NodeLogs]. If nil, the path has status 405.
	Logs http.Handler
	// Checkpoint handles POST /checkpoint/, see [Checkpoint].
	Checkpoint http.Handler
	// History handles GET /debug/history/, see [History].
	History http.Handler
	// SetVerbosity changes how much is logged, for PUT /debug/flags/v, see [Verbosity].
	SetVerbosity func(level string) error
	// NoDebugging switches the debugging handlers off, as kubelet's enableDebuggingHandlers:
	// false does.
	NoDebugging bool
	// Requests receives which sessions begin by WebSocket. The other requests to a port are
	// measured before its guard, see [Measured]. Default: none.
	Requests RequestMetrics
}

// Handler returns a handler of the read-only API: /healthz, /pods and /metrics.
func Handler(agent Agent, opts Options) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	mux := &routes{}
	addReadOnly(mux, agent, opts)
	addNoDebugging(mux)
	return mux
}

// Kubelet returns a handler of kubelet's API: everything that this package serves, under
// kubelet's paths. Clients can run commands in all containers, so that a guard of package
// server/auth has to stand before it, and they are [Trusted].
//
// With Options.NoDebugging it is the read-only API. As in [Handler], the paths of kubelet's
// debugging handlers have status 405 then.
func Kubelet(agent Agent, opts Options) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	mux := &routes{}
	addReadOnly(mux, agent, opts)
	if opts.NoDebugging {
		addNoDebugging(mux)
		return Trusted(mux)
	}
	addContainers(mux, agent, opts)
	if opts.RunningPods != nil {
		pods := RunningPods(opts.RunningPods)
		mux.handle("GET /runningpods", pods)
		mux.handle("GET /runningpods/{$}", pods)
	}
	if opts.AllocatedPods {
		addAllocatedPods(mux, agent)
	}
	if opts.Config != nil {
		mux.handle("GET /configz", Configz(opts.Config))
	}
	if opts.Flags != nil {
		mux.handle("GET /flagz", Flagz(opts.Flags))
	}
	if opts.Logs != nil {
		mux.handle("GET /logs/", opts.Logs)
	} else {
		mux.handle("/logs/", disabled("logs endpoint is disabled."))
	}
	if opts.Checkpoint != nil {
		mux.handle("POST /checkpoint/{namespace}/{pod}/{container}", opts.Checkpoint)
	}
	if opts.History != nil {
		mux.handle("GET /debug/history/{namespace}/{pod}", opts.History)
		mux.handle("GET /debug/history/{namespace}/{pod}/{uid}", opts.History)
	}
	if opts.Profiles != nil {
		mux.handle("GET /debug/pprof/", opts.Profiles)
	} else {
		mux.handle("/debug/pprof/", disabled("profiling endpoint is disabled."))
	}
	if opts.SetVerbosity != nil {
		mux.handle("/debug/flags/v", Verbosity(opts.SetVerbosity))
	} else {
		mux.handle("/debug/flags/v", disabled("flags endpoint is disabled."))
	}
	if opts.Version != "" { // the last one: it lists the paths
		mux.handle("GET /statusz", Statusz(opts.Version, mux.folders()))
	}
	return Trusted(mux)
}

// addReadOnly adds what kubelet serves on both ports.
func addReadOnly(mux *routes, agent Agent, opts Options) {
	addHealthz(mux, agent, opts)
	addPods(mux, agent, opts)
	if opts.Metrics != nil {
		mux.handle("GET /metrics", opts.Metrics)
	}
	if opts.ProbeMetrics != nil {
		mux.handle("GET /metrics/probes", opts.ProbeMetrics)
	}
	if opts.SLIMetrics != nil {
		mux.handle("GET /metrics/slis", opts.SLIMetrics)
	}
	addStats(mux, opts)
}

// addNoDebugging answers on the paths of debugging handlers.
func addNoDebugging(mux *routes) {
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/",
		"/debug/pprof/", "/logs/"} {
		mux.handle(path, disabled("Debug endpoints are disabled."))
	}
}

// disabled returns a handler of something that is switched off, as in kubelet.
func disabled(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, text, http.StatusMethodNotAllowed)
	})
}

// routes is a mux that lists its paths. The zero value is ready.
type routes struct {
	http.ServeMux
	paths []string
}

func (r *routes) handle(pattern string, h http.Handler) {
	_, path, ok := strings.Cut(pattern, " ")
	if !ok {
		path = pattern
	}
	r.paths = append(r.paths, path)
	r.Handle(pattern, h)
}

// folders returns the first elements of the paths, such as "/metrics".
func (r *routes) folders() (out []string) {
	for _, path := range r.paths {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		out = append(out, "/"+name)
	}
	return out
}
