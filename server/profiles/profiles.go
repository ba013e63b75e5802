// Package profiles serves the profiles of the Go runtime for server.Options.Profiles.
//
// It is a package of its own because it links net/http/pprof, which also adds its handlers to
// [http.DefaultServeMux].
package profiles

import (
	"net/http"
	"net/http/pprof"
)

// Handler returns a handler of the paths below /debug/pprof/.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
