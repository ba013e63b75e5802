package admission

import (
	"errors"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The reason and the message of pods that are preempted. They are kubelet's.
const (
	ReasonPreempted  = "Preempting"
	MessagePreempted = "Preempted in order to admit critical pod"
)

// Options are the settings of an [Admitter]. Node is required.
type Options struct {
	// Node returns the node. It must not block. If its Node is nil, all pods are refused.
	Node func() Node
	// Refresh, if not nil, returns the node as the API server has it now. It is called when
	// a pod does not match the labels of the node that Node returned: the pod may have been
	// scheduled because of a label that has not arrived here. It must return within a
	// second or two, also while the API server is away, because no other pod is handled
	// meanwhile. ok is false if the API server has not answered. If it takes long, it is called
	// for a tenth of the time only: then the last answer holds for some pods.
	Refresh func() (node Node, ok bool)
	// Managed, if not nil, reports whether another component decides which pods get an extended resource. Then it is
	// not compared with the node's.
	Managed func(name v1.ResourceName) bool
	// DeclaredFeatures returns the names of the features that the node declares (KEP-5328). A pod that needs another
	// one is refused. It must not block, and must be safe for concurrent use. If nil, the node declares none.
	DeclaredFeatures func() []string
	// ResourceClaims means that a component of the agent prepares the claims of pods, such as a dra.Manager. Otherwise
	// pods with resource claims are refused.
	ResourceClaims bool
	// DeferResizes is kubelet's feature gate InPlacePodVerticalScalingSchedulerPreemption: a resize of a critical pod
	// that does not fit preempts no pods, but waits until the scheduler has made room.
	DeferResizes bool
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Admitter is the [lifecycle.Admitter] of a node in a cluster. It
// is called from one goroutine at a time.
type Admitter struct {
	opts     Options
	features features
	// preempted are the pods that were told to end and hold resources still.
	preempted map[types.UID]bool
	// requests are those of the pods that were active at the last call. To compute one takes
	// longer than all else that is done for an active pod.
	requests map[*v1.Pod]v1.ResourceList

	// fresh is the last answer of Options.Refresh, nil if there was none. It holds until refreshAt.
	fresh     *Node
	refreshAt time.Time
}

var _ lifecycle.Admitter = (*Admitter)(nil)

// New returns an Admitter.
func New(opts Options) (*Admitter, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Node == nil {
		return nil, errors.New("admission: Options.Node is required")
	}
	return &Admitter{
		opts: opts, features: newFeatures(opts.DeclaredFeatures, opts.ResourceClaims),
		preempted: map[types.UID]bool{}, requests: map[*v1.Pod]v1.ResourceList{},
	}, nil
}

// Name implements [lifecycle.Component].
func (*Admitter) Name() string { return "node" }

// Order implements [lifecycle.Ordered]: a pod that does not fit is given no CPUs, memory or devices.
func (*Admitter) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"topology"}} }

// Admit implements [lifecycle.Admitter]. For a critical pod that does not fit, the response has the pods that make
// room.
func (a *Admitter) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	evict, err := a.admit(req)
	return lifecycle.AdmitResponse{Evict: evict}, err
}

func (a *Admitter) admit(req lifecycle.AdmitRequest) ([]lifecycle.Preemption, error) {
	if os, ok := req.Pod.Labels[v1.LabelOSStable]; ok && os != goruntime.GOOS {
		return nil, lifecycle.Refuse(ReasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't "+
			"match node label")
	}
	node := a.opts.Node()
	node.managed = a.opts.Managed
	if node.Node == nil {
		return nil, lifecycle.Refuse(ReasonNoNode, "The node's labels and resources are not known.")
	}
	defer a.forget(req.Active)
	failures := compare(req.Pod, req.Active, node, a.request)
	if a.opts.Refresh != nil && len(failures) > 0 && !slices.ContainsFunc(failures,
		func(f Failure) bool { return f.Reason != ReasonNodeAffinity }) {
		if fresh := a.refresh(); fresh != nil {
			node, failures = *fresh, compare(req.Pod, req.Active, *fresh, a.request)
		}
	}
	if len(failures) > 0 && (!podspec.IsCritical(req.Pod) || a.opts.DeferResizes && req.Held != nil) {
		return nil, refusal(failures[0])
	}
	if f, missing := a.features.missing(req.Pod); missing {
		return nil, refusal(f) // before others end for a pod that cannot run
	}
	if len(failures) > 0 {
		return a.preempt(req, node)
	}
	return nil, nil
}

const (
	// shortRefresh is how long a call of Options.Refresh may take without a pause after it.
	shortRefresh = 10 * time.Millisecond
	// refreshPause is the pause after a longer one, in multiples of its duration. Each user who may
	// bind pods to nodes can cause any number of calls, and no pod of the node is handled during one.
	refreshPause = 9
)

// refresh returns the node as the API server has it, nil if that is not known.
func (a *Admitter) refresh() *Node {
	began := time.Now()
	if began.Before(a.refreshAt) {
		return a.fresh
	}
	a.fresh = nil
	if node, ok := a.opts.Refresh(); ok && node.Node != nil {
		node.managed = a.opts.Managed
		a.fresh = &node
	}
	now := time.Now()
	a.refreshAt = now
	if took := now.Sub(began); took > shortRefresh {
		a.refreshAt = now.Add(refreshPause * took)
	}
	return a.fresh
}

func refusal(f Failure) error { return lifecycle.Refuse(f.Reason, f.Message) }

// preempt admits a critical pod that does not fit if other pods can make room, and returns these.
func (a *Admitter) preempt(req lifecycle.AdmitRequest, node Node) (evict []lifecycle.Preemption, err error) {
	staying := slices.DeleteFunc(slices.Clone(req.Active), func(p *v1.Pod) bool { return a.preempted[p.UID] })
	failures := compare(req.Pod, staying, node, a.request)
	if i := slices.IndexFunc(failures, func(f Failure) bool { return f.Resource == "" }); i >= 0 {
		return nil, refusal(failures[i]) // the end of no pod would help
	}
	victims, err := Preempt(req.Pod, staying, failures)
	if err != nil {
		f := failures[0]
		f.Message += "; " + err.Error()
		return nil, refusal(f)
	}
	for _, p := range victims {
		a.opts.Logger.Info("Pod is preempted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID,
			"for", req.Pod.Namespace+"/"+req.Pod.Name)
		a.preempted[p.UID] = true
	}
	var missing v1.ResourceName
	if len(failures) > 0 {
		missing = failures[0].Resource
	}
	for _, p := range req.Active { // also those that are ending for another pod: this one waits for them, too
		if a.preempted[p.UID] {
			evict = append(evict, lifecycle.Preemption{Pod: p, Reason: ReasonPreempted, Message: MessagePreempted,
				Resource: missing})
		}
	}
	return evict, nil
}

// request returns the request of the pod. Pods do not change; a changed one is another value.
func (a *Admitter) request(pod *v1.Pod) v1.ResourceList {
	r, ok := a.requests[pod]
	if !ok {
		r = request(pod)
		a.requests[pod] = r
	}
	return r
}

// forget drops what is kept of pods that hold no resources any more, when there is more of
// it than of others.
func (a *Admitter) forget(active []*v1.Pod) {
	if len(a.requests)+len(a.preempted) <= 2*len(active)+1 {
		return
	}
	preempted, requests := map[types.UID]bool{}, make(map[*v1.Pod]v1.ResourceList, len(active))
	for _, p := range active {
		if a.preempted[p.UID] {
			preempted[p.UID] = true
		}
		if r, ok := a.requests[p]; ok {
			requests[p] = r
		}
	}
	a.preempted, a.requests = preempted, requests
}
