package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// HealthCheck is one check of /healthz.
type HealthCheck struct {
	Name string
	// Run must not block, and is called concurrently.
	Run func() error
}

// healthChecks are those of kubelet. The check syncloop is everything that the agent checks.
func healthChecks(agent Agent, opts Options) []HealthCheck {
	fine := func() error { return nil }
	log := opts.LogHealthy
	if log == nil {
		log = fine
	}
	return append([]HealthCheck{{"ping", fine}, {"log", log}, {"syncloop", agent.Healthy}}, opts.HealthChecks...)
}

// Healthz returns a handler of /healthz and of its single checks /healthz/ping, /healthz/log and
// /healthz/syncloop, and those of the options, for a separate port. The answer is "ok", or status 500 and what is
// wrong. The query parameters are those of kubelet: verbose lists the checks, exclude leaves one out. Of opts it uses
// HealthChecked, HealthChecks and LogHealthy.
func Healthz(agent Agent, opts Options) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	mux := &routes{}
	addHealthz(mux, agent, opts)
	return mux
}

func addHealthz(mux *routes, agent Agent, opts Options) {
	checks := healthChecks(agent, opts)
	mux.handle("GET /healthz",
		http.HandlerFunc(func(w http.ResponseWriter,
			req *http.Request) {
			runChecks(w, req, checks, opts.HealthChecked)
		}))
	for _, check := range checks {
		mux.handle("GET /healthz/"+check.Name, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := check.Run(); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte("ok"))
		}))
	}
}

// runChecks answers with the results of all checks.
func runChecks(w http.ResponseWriter, req *http.Request, checks []HealthCheck, checked func(check string, err error)) {
	query := req.URL.Query()
	excluded := query["exclude"]
	var lines strings.Builder
	failed := false
	for _, check := range checks {
		if slices.Contains(excluded, check.Name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		err := check.Run()
		if checked != nil {
			checked(check.Name, err)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.Name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
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
