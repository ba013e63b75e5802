package oom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Watcher]. The zero value is valid.
type Options struct {
	// Open opens the log of the kernel, after its last record. Default: [OpenKmsg].
	Open func() (Log, error)
	// Event receives the events SystemOOM, about the node, and OOMKilling, about a pod. If nil, they are discarded.
	Event runtime.EventFunc
	// Record receives a [runtime.KindOOMKill] for each kill of a process of a pod that has an event. If nil, they are discarded.
	Record runtime.RecordFunc
	// Metrics receives what is measured. nil: nobody does.
	Metrics Metrics
	Logger  logr.Logger

	cgroupOf func(pid int, process string) string // of a test
}

// Metrics receives measurements. Its methods must not block.
type Metrics interface {
	// Killed is called for each killed process. Pod is zero if it belonged to no pod of the agent, and global means that the machine was
	// out of memory.
	Killed(pod runtime.PodRef, container string, global bool)
}

// Interface is what an agent needs of a watcher of kills.
type Interface interface {
	lifecycle.Runner
	lifecycle.RunningHandler
	lifecycle.GoneHandler
	// Statuses have the reason OOMKilled for containers that ended because of a kill.
	lifecycle.InspectionWrapper
}

var _ Interface = (*Watcher)(nil)

// ErrAlreadyRunning is the error of a second call of [Watcher.Run].
var ErrAlreadyRunning = errors.New("oom: Run was called before")

// Watcher watches the processes that the kernel kills for lack of memory. It is safe for concurrent use.
type Watcher struct {
	opts Options

	// reading serializes the reads of the log. It is taken before mu, and not held when others are called.
	reading sync.Mutex
	parser  Parser
	buf     []byte

	mu  sync.Mutex
	log Log // nil before Run, after it, and if there is none
	ran bool
	// owners are the containers that run or have run, by their IDs, and byPod their IDs by pod. A pod is in them from Running to Gone.
	owners map[string]owner
	byPod  map[types.UID]podState
	claims claims
	limits limiter
}

// owner is the pod and the container that a process belongs to. The container is "" if only the pod is known.
type owner struct {
	ref             runtime.PodRef
	container, path string // path is that of the container in the pod's spec
}

// podState is what is kept of a pod.
type podState struct {
	ref runtime.PodRef
	ids []string
}

// New returns a watcher. It reads nothing before [Watcher.Run].
func New(opts Options) (*Watcher, error) {
	if opts.Open == nil {
		opts.Open = OpenKmsg
	}
	if opts.cgroupOf == nil {
		opts.cgroupOf = cgroupOf
	}
	return &Watcher{opts: opts, buf: make([]byte, maxRecord), owners: map[string]owner{}, byPod: map[types.UID]podState{}}, nil
}

// Name implements [lifecycle.Component].
func (w *Watcher) Name() string { return "OOM watcher" }

// Run reads the log until ctx ends. If the log cannot be opened or read, it logs that once and waits for ctx: an agent does
// not end because of it. Its only error is [ErrAlreadyRunning].
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ran {
		w.mu.Unlock()
		return ErrAlreadyRunning
	}
	w.ran = true
	w.mu.Unlock()
	log, err := w.opts.Open()
	if err != nil {
		w.opts.Logger.Info("Kills for lack of memory are not watched, since the log of the kernel cannot be read; reasons of containers are those of the runtime", "error", err.Error())
		<-ctx.Done()
		return nil
	}
	w.set(log)
	for ctx.Err() == nil {
		if err = log.Wait(ctx); err == nil {
			err = w.read()
		}
		if err != nil && ctx.Err() == nil {
			w.opts.Logger.Error(err, "Kills for lack of memory are not watched any more, since the log of the kernel cannot be read")
			break
		}
	}
	w.set(nil)
	w.reading.Lock() // an inspection may be reading
	_ = log.Close()
	w.reading.Unlock()
	<-ctx.Done()
	return nil
}

func (w *Watcher) set(log Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = log
}

// maxAtOnce is the number of records that one read takes. A flood of records must not hold up inspections.
const maxAtOnce = 4096

// read reads the records that are there, and reports the kills.
func (w *Watcher) read() error {
	victims, err := w.take()
	for i := range victims {
		w.report(&victims[i])
	}
	return err
}

// victim is a kill and the container that it happened in.
type victim struct {
	kill  Kill
	owner owner
	known bool // the owner is known
}

// take reads the records that are there. The claims of their kills are kept when it returns.
func (w *Watcher) take() (victims []victim, err error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	log := w.log
	w.mu.Unlock()
	if log == nil {
		return nil, nil
	}
	for range maxAtOnce {
		n, err := log.Next(w.buf)
		switch {
		case errors.Is(err, ErrNoRecord):
			return victims, nil
		case errors.Is(err, ErrLost):
			continue
		case err != nil:
			return victims, err
		}
		k, ok := w.parser.Parse(w.buf[:n])
		if !ok {
			continue
		}
		if k.Cgroup == "" && !k.Group {
			k.Cgroup = w.opts.cgroupOf(k.PID, k.Process)
		}
		victims = append(victims, w.claim(k))
	}
	return victims, nil
}

// claim keeps that the kill happened in its container. If the container is not known yet, its first inspection reports the kill.
func (w *Watcher) claim(k Kill) victim {
	uid, id := Place(k.Cgroup)
	w.mu.Lock()
	defer w.mu.Unlock()
	v := victim{kill: k}
	if v.owner, v.known = w.owners[id]; id != "" {
		if k.Group && time.Since(w.claims.byID[id].last) <= together {
			return victim{kill: k} // its kill has been reported, by the cgroup that the process had
		}
		w.claims.add(id, k, time.Now(), v.known)
	} else if p, ok := w.byPod[uid]; ok {
		v.owner, v.known = owner{ref: p.ref}, true
	}
	return v
}

// report reports a kill by events, records and metrics.
func (w *Watcher) report(v *victim) {
	k := v.kill
	if w.opts.Metrics != nil {
		w.opts.Metrics.Killed(v.owner.ref, v.owner.container, k.Global)
	}
	if k.Global && !k.Group {
		if left, ok := w.allow(""); ok {
			// The text is kubelet's (oom/oom_watcher_linux.go).
			w.opts.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: ReasonSystemOOM,
				Message: fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID) + leftOut(left)})
		}
	}
	switch {
	case v.known:
		w.reportTo(v.owner, k)
	case !k.Group:
		w.opts.Logger.V(1).Info("The kernel killed a process for lack of memory, and it belongs to no container that is known", "process", k.Process, "pid", k.PID, "cgroup", k.Cgroup)
	}
}

// reportTo reports a kill to the pod.
func (w *Watcher) reportTo(o owner, k Kill) {
	left, ok := w.allow(string(o.ref.UID) + "/" + o.container)
	if !ok {
		return
	}
	of := ""
	if o.container != "" {
		of = " of container " + o.container
	}
	process, limit := fmt.Sprintf("%s (pid %d)", k.Process, k.PID), limitText(k)
	w.opts.Event.Emit(runtime.Event{Pod: o.ref, FieldPath: o.path, Type: v1.EventTypeWarning, Reason: ReasonOOMKilling,
		Message: "The kernel killed process " + process + of + ": " + limit + leftOut(left)})
	w.opts.Record.Emit(runtime.Record{Pod: o.ref, Stage: runtime.StageSeen, Kind: runtime.KindOOMKill, Container: o.container, Message: process + "; " + limit + leftOut(left)})
}

// Reasons of events. The first one is kubelet's, the other one that of node-problem-detector.
const (
	ReasonSystemOOM  = "SystemOOM"
	ReasonOOMKilling = "OOMKilling"
)

func leftOut(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d more were killed since the last event)", n)
}

// limitText says which limit was reached.
func limitText(k Kill) string {
	if k.Global {
		return "the node is out of memory"
	}
	uid, id := Place(k.Cgroup)
	limitUID, limitID := Place(k.Limit)
	switch {
	case k.Limit == "" || limitUID != uid:
		return "a memory limit is reached"
	case limitID != "" && limitID == id:
		return "the memory limit of the container is reached"
	case limitUID != "" && limitID == "":
		return "the memory limit of the pod is reached"
	default:
		return "a memory limit is reached"
	}
}

func (w *Watcher) allow(subject string) (left int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limits.allow(subject, time.Now())
}

// Running implements [lifecycle.RunningHandler]: it keeps to which pod the containers belong.
func (w *Watcher) Running(_ context.Context, pod *v1.Pod, observed *runtime.PodStatus) error {
	for _, v := range w.seen(pod, observed) {
		w.reportTo(v.owner, v.kill)
	}
	return nil
}

// seen keeps the containers, and returns the kills that happened before they were known.
func (w *Watcher) seen(pod *v1.Pod, observed *runtime.PodStatus) (late []victim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(pod.UID)
	ref := runtime.RefOf(pod)
	ids := make([]string, 0, len(observed.Containers))
	for i := range observed.Containers {
		c := &observed.Containers[i]
		o := owner{ref, c.Name, runtime.FieldPath(pod, c.Name)}
		w.owners[c.ID.ID] = o
		ids = append(ids, c.ID.ID)
		if k, ok := w.claims.reported(c.ID.ID); ok {
			late = append(late, victim{k, o, true})
		}
	}
	w.byPod[pod.UID] = podState{ref, ids}
	return late
}

// Gone implements [lifecycle.GoneHandler].
func (w *Watcher) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(req.Pod.UID)
	return nil
}

func (w *Watcher) forget(uid types.UID) {
	for _, id := range w.byPod[uid].ids {
		delete(w.owners, id)
	}
	delete(w.byPod, uid)
}
