package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// HealthMetrics receives the results of health checks, for /metrics/slis. It is safe for
// concurrent use. A *prommetrics.SLIs implements it.
type HealthMetrics interface {
	// HealthChecked is called for each check, such as "syncloop", that a request for all checks has
	// run. err is the result of the check, nil if nothing is wrong.
	HealthChecked(check string, err error)
}

// healthCheck is one check of /healthz.
type healthCheck struct {
	name string
	run  func() error
}

// LogChecker is an optional interface of an [Agent], found by [runtime.Optional]. Without it
// /healthz/log is "ok".
type LogChecker interface {
	// LogHealthy returns an error while logs cannot be written. It must not block, and is safe for
	// concurrent use.
	LogHealthy() error
}

// healthChecks are those of kubelet. The check syncloop is everything that the agent checks.
func healthChecks(agent Agent) []healthCheck {
	fine := func() error { return nil }
	log := fine
	if l, ok := runtime.Optional[LogChecker](agent); ok {
		log = l.LogHealthy
	}
	return []healthCheck{{"ping", fine}, {"log", log}, {"syncloop", agent.Healthy}}
}

// Healthz returns a handler of /healthz and of its single checks /healthz/ping, /healthz/log and
// /healthz/syncloop, for a separate port. The answer is "ok", or status 500 and what is wrong. The
// query parameters are those of kubelet: verbose lists the checks, exclude leaves one out.
func Healthz(agent Agent) http.Handler { return HealthzWithMetrics(agent, nil) }

// HealthzWithMetrics returns the handler that [Healthz] returns, which reports the results of
// the checks to metrics. If metrics is nil, they are discarded.
func HealthzWithMetrics(agent Agent, metrics HealthMetrics) http.Handler {
	mux := &routes{}
	addHealthz(mux, agent, metrics)
	return mux
}

func addHealthz(mux *routes, agent Agent, metrics HealthMetrics) {
	checks := healthChecks(agent)
	mux.handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { runChecks(w, req, checks, metrics) }))
	for _, check := range checks {
		mux.handle("GET /healthz/"+check.name, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := check.run(); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte("ok"))
		}))
	}
}

// runChecks answers with the results of all checks.
func runChecks(w http.ResponseWriter, req *http.Request, checks []healthCheck, metrics HealthMetrics) {
	query := req.URL.Query()
	excluded := query["exclude"]
	var lines strings.Builder
	failed := false
	for _, check := range checks {
		if slices.Contains(excluded, check.name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.name)
			continue
		}
		err := check.run()
		if metrics != nil {
			metrics.HealthChecked(check.name, err)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", check.name)
	}
	switch {
	case failed:
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
	case query.Has("verbose"):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "%shealthz check passed\n", lines.String())
	default:
		_, _ = w.Write([]byte("ok"))
	}
}
