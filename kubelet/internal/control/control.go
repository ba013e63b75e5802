// Package control serves the socket by which the commands of minikubelet reach the agent:
// the API of package server, and beside it the pods that are gone, the events and the
// history of a pod, and the end of all pods. Commands send requests with a [Client].
package control

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// The paths of [Handler] beside those of [server.Control].
const (
	// GonePath answers GET with the pods that are gone, a JSON list of [recent.Gone].
	GonePath = "/gone"
	// EventsPath followed by a UID answers GET with the latest events of that pod, without one with those of all pods
	// or of those in its parameters uid, a JSON list of [runtime.Event], the oldest first of each pod.
	EventsPath = "/events/"
	// ImagesPath answers GET with the images, and with what a collection would remove, as a
	// [gc.ImagePreview] in JSON. With the parameter goal=all it is [gc.AllUnusedImages].
	ImagesPath = "/images"
	// ImageGCPath answers POST, when images were collected, with [Collected] in JSON. It has
	// the parameter of ImagesPath.
	ImageGCPath = "/images/gc"
	// DiskPath answers GET with what the agent and its runtime have on the disk, as [Disk] in JSON. It has the
	// parameter of ImagesPath.
	DiskPath = "/disk"
	// HistoryPath answers GET with the pods that have a history, as [Histories] in JSON.
	// Followed by a UID it answers with the history of that pod, a sequence
	// of [history.Entry] values in JSON; with the query follow=true also what comes later.
	HistoryPath = "/history/"
	// ResourcesPath answers GET with the CPUs, memory, devices and claims that containers hold, a JSON list of
	// [Holding].
	ResourcesPath = "/resources"
	// ProblemsPath answers GET with the manifests that cannot be used, a JSON list of [Problem].
	ProblemsPath = "/problems"
	// RestartPath followed by a UID answers POST when containers of that pod have ended, each in its grace period. The
	// parameters container have their names, and by says who requests it, for the log and the history. The restart
	// policy of the pod starts them again.
	RestartPath = "/restart/"
	// StopPath answers POST with a sequence of [Progress] values in JSON while all pods
	// are ended. After the last one the agent exits. With the parameter by-priority=true they end in the order of
	// their priorities, as at a shutdown of the machine.
	StopPath = "/stop"
)

// Progress is the state of an agent that ends its pods.
type Progress struct {
	// Left are the pods of which something still runs, as [Node].Ending returns them.
	Left []string `json:"left,omitempty"`
	// Done means that nothing runs any more.
	Done bool `json:"done,omitempty"`
	// Error is set if the agent has given up.
	Error string `json:"error,omitempty"`
}

// Problem is a manifest that cannot be used.
type Problem struct {
	// Path is that of the file, or the URL.
	Path  string `json:"path"`
	Error string `json:"error"`
	// Pod is the pod that the error names, as "namespace/name". It may be empty.
	Pod string `json:"pod,omitempty"`
	// Warning is set if the manifest is used although it has the problem.
	Warning bool `json:"warning,omitempty"`
	// Since is when the agent found the problem. It may be zero.
	Since time.Time `json:"since,omitzero"`
}

// ByUse returns the problems of manifests that cannot be used, and those of manifests that are used.
func ByUse(list []Problem) (broken, used []Problem) {
	for _, p := range list {
		if p.Warning {
			used = append(used, p)
		} else {
			broken = append(broken, p)
		}
	}
	return broken, used
}

// Histories are the pods that have a history.
type Histories struct {
	// NodeName is the name of the node, with which the names of static pods end.
	NodeName string        `json:"nodeName"`
	Pods     []history.Pod `json:"pods"`
}

// Disk is what the agent and its runtime have on the disk.
type Disk struct {
	Items []DiskItem `json:"items"`
	// Error says what could not be read.
	Error string `json:"error,omitempty"`
}

// DiskItem is something on the disk.
type DiskItem struct {
	// Kind is "image", "container", "sandbox", "logs", "pod", or "agent" for what the agent keeps in its root
	// directory.
	Kind string `json:"kind"`
	// Name is an ID, the name of an image, or a path.
	Name string `json:"name"`
	// Owner is the pod and the container, if there is one.
	Owner string `json:"owner,omitempty"`
	// Bytes is the size. It is not given if it is not known, or if measuring it takes long.
	Bytes *int64 `json:"bytes,omitempty"`
	// KeptBy is what keeps it, and Removal why it would be removed by the next collection. One of them is set.
	KeptBy  string `json:"keptBy,omitempty"`
	Removal string `json:"removal,omitempty"`
}

// Collected is the result of a collection of images.
type Collected struct {
	// Removed are the images that were removed.
	Removed []gc.Image `json:"removed,omitempty"`
	// Error says what went wrong.
	Error string `json:"error,omitempty"`
}

// progressPeriod is how often it is looked which pods are left.
const progressPeriod = 100 * time.Millisecond

// Node is the agent as its commands see it.
type Node interface {
	server.Agent
	// Gone returns the pods that are gone, the latest first.
	Gone() []recent.Gone
	// Events returns the latest events of the pod, the oldest first.
	Events(uid types.UID) []runtime.Event
	// AllEvents returns the latest events of all pods, the oldest first.
	AllEvents() []runtime.Event
	// Problems returns the manifests that cannot be used, sorted by path.
	Problems() []Problem
	// Holdings returns the CPUs, memory, devices and claims that containers hold.
	Holdings() []Holding
	// History returns the histories of the pods.
	History() history.Store
	// NodeName returns the name of the node.
	NodeName() string
	// Status returns the state of the agent and of its node.
	Status() Status
	// Ending returns the pods that are to end and have not ended, as "namespace/name". An error of
	// the last attempt follows in parentheses.
	Ending(ctx context.Context) []string
	// NodeObject returns the node as an API server has it, or would have it.
	NodeObject(ctx context.Context) (*v1.Node, error)
	// StopContainers stops containers of a pod, each in its grace period. The restart policy starts them again.
	// The log and the history have who requests it.
	StopContainers(ctx context.Context, uid types.UID, names []string, by string) error
	// Images returns the images, and what a collection would remove.
	Images(ctx context.Context, goal gc.ImageGoal) (gc.ImagePreview, error)
	// Disk returns what the agent and its runtime have on the disk.
	Disk(ctx context.Context, goal gc.ImageGoal) Disk
	// CollectImages makes a collection of images.
	CollectImages(ctx context.Context, goal gc.ImageGoal) Collected
}

// Handler returns the API of the socket. Clients can execute commands in containers and
// end all pods.
func Handler(node Node, stop *Stop, opts server.Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", server.Control(node, opts))
	answer := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(value); err != nil {
			opts.Logger.V(1).Info("A client of the socket went away", "reason", err.Error())
		}
	}
	mux.HandleFunc("GET "+GonePath, func(w http.ResponseWriter, _ *http.Request) { answer(w, node.Gone()) })
	mux.HandleFunc("GET "+StatusPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, node.Status()) })
	mux.HandleFunc("GET "+ProblemsPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, node.Problems()) })
	mux.HandleFunc("GET "+ResourcesPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, node.Holdings()) })
	mux.HandleFunc("GET "+EventsPath+"{$}",
		func(w http.ResponseWriter, req *http.Request) {
			uids := req.URL.Query()["uid"]
			if len(uids) == 0 {
				answer(w, node.AllEvents())
				return
			}
			events := []runtime.Event{}
			for _, uid := range uids {
				events = append(events, node.Events(types.UID(uid))...)
			}
			answer(w, events)
		})
	mux.HandleFunc("GET "+EventsPath+"{uid}", func(w http.ResponseWriter, req *http.Request) {
		answer(w, node.Events(types.UID(req.PathValue("uid"))))
	})
	mux.HandleFunc("GET "+ImagesPath, func(w http.ResponseWriter, req *http.Request) {
		preview, err := node.Images(req.Context(), goalOf(req))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, preview)
	})
	mux.HandleFunc("GET "+NodePath, func(w http.ResponseWriter, req *http.Request) {
		object, err := node.NodeObject(req.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, object)
	})
	mux.HandleFunc("GET "+DiskPath, func(w http.ResponseWriter, req *http.Request) {
		answer(w, node.Disk(req.Context(), goalOf(req)))
	})
	mux.HandleFunc("POST "+ImageGCPath, func(w http.ResponseWriter, req *http.Request) {
		answer(w, node.CollectImages(req.Context(), goalOf(req)))
	})
	mux.HandleFunc("GET "+HistoryPath+"{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, Histories{NodeName: node.NodeName(), Pods: node.History().Pods()})
	})
	mux.HandleFunc("GET "+HistoryPath+"{uid}", func(w http.ResponseWriter, req *http.Request) {
		uid := types.UID(req.PathValue("uid"))
		entries := slices.Values(node.History().Entries(uid))
		if req.URL.Query().Get("follow") == "true" {
			entries = node.History().Watch(req.Context(), uid)
		}
		sendHistory(w, entries)
	})
	mux.HandleFunc("POST "+RestartPath+"{uid}", func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		err := node.StopContainers(req.Context(), types.UID(req.PathValue("uid")), query["container"], query.Get("by"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST "+StopPath, func(w http.ResponseWriter, req *http.Request) {
		stop.request(req.URL.Query().Get("by-priority") == "true")
		w.Header().Set("Content-Type", "application/json")
		flush := http.NewResponseController(w).Flush
		_ = flush() // a client that is gone already is noticed with the next write
		enc := json.NewEncoder(w)
		stop.follow(req.Context(), node.Ending, func(p Progress) error {
			if err := enc.Encode(p); err != nil {
				return err
			}
			return flush()
		})
	})
	return mux
}

// goalOf returns the goal of a collection that the request asks for.
func goalOf(req *http.Request) gc.ImageGoal {
	if req.URL.Query().Get("goal") == string(gc.AllUnusedImages) {
		return gc.AllUnusedImages
	}
	return gc.ImagesToThresholds
}

// sendHistory writes entries as they come, until they end or the client is gone.
func sendHistory(w http.ResponseWriter, entries iter.Seq[history.Entry]) {
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w).Flush
	_ = flush() // a client that is gone already is noticed with the next write
	enc := json.NewEncoder(w)
	for e := range entries {
		if enc.Encode(e) != nil || flush() != nil {
			return
		}
	}
}

// Stop is the request of a client that all pods end, and then the agent.
type Stop struct {
	once            sync.Once // closes requested
	requested, done chan struct{}
	byPriority      bool  // set before requested is closed
	err             error // set before done is closed
}

// NewStop returns a Stop that is not requested.
func NewStop() *Stop {
	return &Stop{requested: make(chan struct{}), done: make(chan struct{})}
}

// request requests the end; the first request counts.
func (s *Stop) request(byPriority bool) {
	s.once.Do(func() {
		s.byPriority = byPriority
		close(s.requested)
	})
}

// ByPriority reports whether the pods are to end in the order of their priorities. It is for the drain of Run.
func (s *Stop) ByPriority() bool { return s.byPriority }

// Run waits for a request, calls drain, and passes its result on to the clients. It
// reports whether drain has returned nil; it is false if ctx ended before.
func (s *Stop) Run(ctx context.Context, drain func(context.Context) error) bool {
	select {
	case <-ctx.Done():
		s.err = context.Cause(ctx)
	case <-s.requested:
		s.err = drain(ctx)
	}
	close(s.done)
	return s.err == nil
}

// result is the last Progress. done is closed.
func (s *Stop) result() Progress {
	if s.err != nil {
		return Progress{Error: s.err.Error()}
	}
	return Progress{Done: true}
}

// follow sends what changes until the end.
func (s *Stop) follow(ctx context.Context, ending func(context.Context) []string, send func(Progress) error) {
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	var last []string
	for {
		select {
		case <-ctx.Done(): // the client is gone, or the server stops
		case <-s.done:
		case <-tick.C:
		}
		select {
		case <-s.done: // first: the server stops when all pods have ended
			_ = send(s.result()) // nothing follows
			return
		default:
		}
		if ctx.Err() != nil {
			return
		}
		left := ending(ctx)
		if slices.Equal(left, last) {
			continue
		}
		last = left
		if send(Progress{Left: left}) != nil {
			return
		}
	}
}
