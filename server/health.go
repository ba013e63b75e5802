package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// healthCheck is one check of /healthz.
type healthCheck struct {
	name string
	run  func() error
}

// healthChecks are those of kubelet. syncloop stands for everything that the agent checks. The
// log has no buffer that could be blocked, so that its check is there for those who ask for it.
func healthChecks(agent Agent) []healthCheck {
	fine := func() error { return nil }
	return []healthCheck{{"ping", fine}, {"log", fine}, {"syncloop", agent.Healthy}}
}

// Healthz returns a handler of /healthz and of its single checks /healthz/ping, /healthz/log and
// /healthz/syncloop, for a separate port. The answer is "ok", or status 500 and what is wrong. The
// query parameters are those of kubelet: verbose lists the checks, exclude leaves one out.
func Healthz(agent Agent) http.Handler {
	mux := newRoutes()
	addHealthz(mux, agent)
	return mux
}

func addHealthz(mux *routes, agent Agent) {
	checks := healthChecks(agent)
	mux.handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { runChecks(w, req, checks) }))
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
func runChecks(w http.ResponseWriter, req *http.Request, checks []healthCheck) {
	query := req.URL.Query()
	excluded := query["exclude"]
	var lines strings.Builder
	failed := false
	for _, check := range checks {
		if slices.Contains(excluded, check.name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.name)
			continue
		}
		if err := check.run(); err != nil {
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
