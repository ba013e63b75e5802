package server

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// Summary returns a handler of /stats/summary. stats is [Options].Stats. As with kubelet, the parameter
// only_cpu_and_memory=true leaves out all but CPU, memory and swap, and a usage that cannot be
// read is status 500.
// A zero log is that of package slog.
func Summary(stats func(ctx context.Context, onlyCPUAndMemory bool) ([]byte, error), log logr.Logger) http.Handler {
	log = logging.OrDefault(log)
	var full, cpuAndMemory lastBody
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		last := &full
		only := req.URL.Query()["only_cpu_and_memory"]
		if len(only) == 1 && only[0] == "true" {
			last = &cpuAndMemory
		}
		data, err := stats(req.Context(), last == &cpuAndMemory)
		if err != nil {
			if req.Context().Err() == nil {
				log.Info("The summary of the usage cannot be read", "reason", err.Error())
			}
			http.Error(w, "Internal Error: "+err.Error(), http.StatusInternalServerError)
			return
		}
		last.of(data).ServeHTTP(w, req)
	})
}

// lastBody is the last answer, so that clients share it, also compressed, until there is another
// summary.
type lastBody struct {
	bodies nodenet.Bodies

	mu   sync.Mutex
	data []byte
	body *nodenet.Body
}

func (l *lastBody) of(data []byte) *nodenet.Body {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil || !bytes.Equal(data, l.data) {
		l.data, l.body = data, l.bodies.New("application/json", data)
	}
	return l.body
}

// addStats adds the paths of the usage of the node and its pods.
func addStats(mux *routes, opts Options) {
	if opts.Stats != nil {
		summary := Summary(opts.Stats, opts.Logger)
		mux.handle("GET /stats/summary", summary)
		mux.handle("POST /stats/summary", summary)
	}
	if opts.ResourceMetrics != nil {
		mux.handle("GET /metrics/resource", opts.ResourceMetrics)
	}
	if opts.CadvisorMetrics != nil {
		mux.handle("GET /metrics/cadvisor", opts.CadvisorMetrics)
	}
}
