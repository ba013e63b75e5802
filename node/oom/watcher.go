package oom

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	// PodCgroup returns the cgroup of a pod, as in "/kubepods/burstable/pod1234", below which its containers have
	// theirs; "" if it has none. The method Parent of a *cgroup.Pods of node/cgroup does. If the log cannot be opened,
	// kills are found by the counts in these cgroups. nil: then they are not found.
	PodCgroup func(pod *v1.Pod) string
	// Counters opens the counts of kills in cgroups. It is not called if the log can be opened. Default:
	// [OpenCounters].
	Counters func() (Counters, error)
	cgroupOf func(pid int, process string) string // of a test
}

// Killed is the measurement of processes that the kernel has killed.
type Killed struct {
	// Pod and Container are zero if it belonged to no pod of the agent.
	Pod       runtime.PodRef
	Container string
	// Global means that the machine was out of memory.
	Global bool
	// Processes is their number.
	Processes int
}

// IsMeasurement implements [runtime.Measurement].
func (Killed) IsMeasurement() {}

var (
	_ lifecycle.Joiner         = (*Watcher)(nil)
	_ lifecycle.Runner         = (*Watcher)(nil)
	_ lifecycle.RunningHandler = (*Watcher)(nil)
	_ lifecycle.GoneHandler    = (*Watcher)(nil)
	// statuses have the reason OOMKilled for containers that ended because of a kill
	_ lifecycle.InspectionWrapper = (*Watcher)(nil)
)

// ErrAlreadyRunning is the error of a second call of [Watcher.Run].
var ErrAlreadyRunning = errors.New("oom: Run was called before")

// Watcher watches the processes that the kernel kills for lack of memory. It is safe for concurrent use.
type Watcher struct {
	opts Options
	node lifecycle.Node
	log  logr.Logger

	// reading serializes the reads of the log. It is taken before mu, and not held when others are called.
	reading sync.Mutex
	parser  Parser
	buf     []byte

	mu   sync.Mutex
	kmsg Log // nil before Run, after it, and if there is none
	ran  bool
	// owners are the containers that run or have run, by their IDs, and byPod their IDs by pod. A pod is in them from
	// Running to Gone.
	owners         map[string]owner
	byPod          map[types.UID]podState
	containerKills containerKills
	limits         limiter
	tallies        tallies
	// counters are nil if there is a log, before Run and after it. counts has the containers that are watched.
	counters   Counters
	counts     map[string]counted
	began      time.Time // when Run was called
	saidCounts bool
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
	// cgroup is that of the pod, "" if it is not known, and running has the containers that ran when they were last
	// seen.
	cgroup  string
	running []runningContainer
}

// New returns a watcher. It reads nothing before [Watcher.Run].
func New(opts Options) (*Watcher, error) {
	if opts.Open == nil {
		opts.Open = OpenKmsg
	}
	if opts.Counters == nil {
		opts.Counters = OpenCounters
	}
	if opts.cgroupOf == nil {
		opts.cgroupOf = cgroupOf
	}
	w := &Watcher{opts: opts, buf: make([]byte, maxRecord), owners: map[string]owner{},
		byPod: map[types.UID]podState{}}
	return w, w.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. A kill is an event SystemOOM about the node, or OOMKilling about a pod, which is
// also recorded as a [runtime.KindOOMKill].
func (w *Watcher) Join(node lifecycle.Node) error {
	w.node, w.log = node, node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (w *Watcher) Name() string { return "OOM watcher" }

// Run reads the log until ctx ends. If the log cannot be opened or read, it logs that once and watches the counts in
// cgroups, if [Options.PodCgroup] is set: an agent does not end because of it. Its only error is [ErrAlreadyRunning].
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ran {
		w.mu.Unlock()
		return ErrAlreadyRunning
	}
	w.ran, w.began = true, time.Now()
	w.mu.Unlock()
	if err := w.followLog(ctx); err != nil {
		w.followCounts(ctx, err)
	}
	<-ctx.Done()
	return nil
}

// followLog reads the log until ctx ends. An error is why it cannot be read any more.
func (w *Watcher) followLog(ctx context.Context) error {
	log, err := w.opts.Open()
	if err != nil {
		return err
	}
	w.set(log)
	for ctx.Err() == nil && err == nil {
		if err = log.Wait(ctx); err == nil {
			err = w.read()
		}
	}
	w.set(nil)
	w.reading.Lock() // an inspection may be reading
	_ = log.Close()
	w.reading.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (w *Watcher) set(log Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kmsg = log
}

// maxAtOnce is the number of records that one read takes. A flood of records must not hold up inspections.
const maxAtOnce = 4096

// read reads the records that are there, and reports the kills.
func (w *Watcher) read() error {
	victims, err := w.take()
	w.reportAll(victims)
	return err
}

func (w *Watcher) reportAll(victims []victim) {
	for i := range victims {
		w.report(&victims[i])
	}
}

// victim is a kill and the container that it happened in.
type victim struct {
	kill  Kill
	owner owner
	known bool // the owner is known
}

// take reads the records that are there. The kills are attributed to containers when it returns.
func (w *Watcher) take() (victims []victim, err error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	log := w.kmsg
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
		victims = append(victims, w.attribute(k))
	}
	return victims, nil
}

// attribute keeps that the kill happened in its container. If the container is not known yet, its first inspection
// reports the kill.
func (w *Watcher) attribute(k Kill) victim {
	uid, id := Place(k.Cgroup)
	w.mu.Lock()
	defer w.mu.Unlock()
	v := victim{kill: k}
	w.tally(k)
	if v.owner, v.known = w.owners[id]; id != "" {
		if k.Group && time.Since(w.containerKills.byID[id].last) <= together {
			return victim{kill: k} // its kill has been reported, by the cgroup that the process had
		}
		w.containerKills.add(id, k, time.Now(), v.known)
	} else if p, ok := w.byPod[uid]; ok {
		v.owner, v.known = owner{ref: p.ref}, true
	}
	return v
}

// report reports a kill by events, records and metrics.
func (w *Watcher) report(v *victim) {
	k := v.kill
	w.node.Measure(Killed{Pod: v.owner.ref, Container: v.owner.container, Global: k.Global,
		Processes: max(1, k.Counted)})
	if k.Global && !k.Group {
		if left, ok := w.allow(""); ok {
			// The text is kubelet's (oom/oom_watcher_linux.go).
			w.node.Event(runtime.Event{Type: v1.EventTypeWarning, Reason: ReasonSystemOOM,
				Message: fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID) +
					leftOut(left)})
		}
	}
	switch {
	case v.known:
		w.reportTo(v.owner, k)
	case !k.Group && k.Counted == 0:
		w.log.V(1).Info("The kernel killed a process for lack of memory, and it belongs to no container "+
			"that is known", "process", k.Process, "pid", k.PID, "cgroup", k.Cgroup)
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
	process, limit := processText(k), limitText(k)
	w.node.Event(runtime.Event{Pod: o.ref, FieldPath: o.path, Type: v1.EventTypeWarning, Reason: ReasonOOMKilling,
		Message: "The kernel killed " + process + of + ": " + limit + leftOut(left)})
	w.node.Record(runtime.Record{Pod: o.ref, Stage: runtime.StageSeen, Kind: runtime.KindOOMKill,
		Container: o.container, Message: strings.TrimPrefix(process, "process ") + "; " + limit + leftOut(left)})
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
	case k.Counted > 0 && k.Limit == "":
		return "a memory limit is reached, or the node is out of memory"
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
	now := podState{ref: runtime.RefOf(pod)}
	if w.opts.PodCgroup != nil {
		now.cgroup = w.opts.PodCgroup(pod)
	}
	for i := range observed.Containers {
		c := &observed.Containers[i]
		now.ids = append(now.ids, c.ID.ID)
		if c.State == runtime.ContainerRunning && now.cgroup != "" {
			now.running = append(now.running, runningContainer{c.ID.ID, c.StartedAt})
		}
	}
	late, before := w.seen(pod, observed, now)
	for _, v := range late {
		w.reportTo(v.owner, v.kill)
	}
	w.follow(before, now)
	return nil
}

// seen keeps the containers, and returns the kills that happened before they were known, and what was kept before.
func (w *Watcher) seen(pod *v1.Pod, observed *runtime.PodStatus, now podState) (late []victim, before podState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.byPod[pod.UID]
	w.forget(pod.UID)
	for i := range observed.Containers {
		c := &observed.Containers[i]
		o := owner{now.ref, c.Name, runtime.FieldPath(pod, c.Name)}
		w.owners[c.ID.ID] = o
		if k, ok := w.containerKills.reported(c.ID.ID); ok {
			late = append(late, victim{k, o, true})
		}
	}
	w.byPod[pod.UID] = now
	return late, before
}

// Gone implements [lifecycle.GoneHandler].
func (w *Watcher) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	w.mu.Lock()
	before := w.byPod[req.Pod.UID]
	w.forget(req.Pod.UID)
	w.mu.Unlock()
	w.follow(before, podState{})
	return nil
}

func (w *Watcher) forget(uid types.UID) {
	for _, id := range w.byPod[uid].ids {
		delete(w.owners, id)
	}
	delete(w.byPod, uid)
}
