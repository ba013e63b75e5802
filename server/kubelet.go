package server

import "net/http"

// Kubelet returns a handler of kubelet's API: everything that this package serves, under
// kubelet's paths. Clients can run commands in all containers, so that a guard of package
// server/auth has to stand before it.
//
// With Options.NoDebugging, the paths of kubelet's debugging handlers answer with status 405:
// what reads logs or runs something in containers, and /runningpods, /debug/pprof and /logs.
func Kubelet(agent Agent, containers Containers, opts Options) http.Handler {
	mux := http.NewServeMux()
	readOnly := Handler(agent, opts)
	mux.Handle("/", readOnly)
	if opts.NoDebugging {
		for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
			mux.HandleFunc(path, debuggingDisabled)
		}
		return mux
	}
	addContainers(mux, agent, containers, opts)
	return mux
}

func debuggingDisabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
}
