package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stopGrace is how long requests under way may take when the server stops.
const stopGrace = time.Second

// Agent is what the server tells about; *kubeletkit.Agent is one.
type Agent interface {
	// Pods returns the node's pods with their status.
	Pods() []*v1.Pod
	// Healthy returns what is wrong with the agent, or nil.
	Healthy() error
}

// Options are the settings of the server; the zero value is good.
type Options struct {
	// Logger. Default: discards.
	Logger logr.Logger
	// Metrics answers GET /metrics of [Handler], as promhttp's handlers do. Default: the
	// path is not found.
	Metrics http.Handler
}

// Handler returns the read-only API.
func Handler(agent Agent, opts Options) http.Handler {
	log := opts.Logger
	if log.IsZero() {
		log = logr.Discard()
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", Healthz(agent))
	if opts.Metrics != nil {
		mux.Handle("GET /metrics", opts.Metrics)
	}
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
		for _, pod := range agent.Pods() {
			list.Items = append(list.Items, *pod)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			log.V(1).Info("A reader of /pods went away", "reason", err.Error())
		}
	})
	return mux
}

// Healthz returns a handler of /healthz alone, for a port of its own.
func Healthz(agent Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := agent.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	return mux
}

// Serve serves the handler on the listener until the context ends, and then
// returns nil when the requests under way are answered, or after a second.
// It closes the listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan error, 1) // one value, of the one goroutine
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := srv.Shutdown(sctx); err != nil {
		_ = srv.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
