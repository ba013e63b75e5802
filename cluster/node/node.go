package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// DefaultKubeletVersion is the version that a node reports: the version of the kubelet with the same
// behaviour, and a mark that this is another program. Clients compare it with the version of the
// control plane, so it has to be a semantic version.
const DefaultKubeletVersion = "v1.37.2+kubeletkit"

const (
	defaultLeaseSeconds = 40               // kubelet: nodeLeaseDurationSeconds
	callTimeout         = 10 * time.Second // kubelet: the timeout of its heartbeat client
	fastPeriod          = 100 * time.Millisecond
	readyPeriod         = time.Second // between two calls of ReadyChecks
	fastDuration        = time.Minute
	settlePeriod        = 10 * time.Millisecond
	settleTime          = time.Second
	watchDelay          = time.Second / 2 // between a change by others and the report about it
)

// Options are the options of [New]. The zero value is a node with the defaults of kubelet
// that is ready.
type Options struct {
	// Hostname is the label kubernetes.io/hostname. Default: the name of the node.
	Hostname string
	// Instance distinguishes the agents of one machine. It stays the same when an agent is
	// restarted: its root directory, for example.
	Instance string
	// Labels are set when the node is registered, also over the default labels. ValidateLabels
	// judges as kubelet does; New only requires labels that the API accepts.
	Labels map[string]string
	// Taints are set when the node object is created.
	Taints []v1.Taint
	// ProviderID is set when the node object is created.
	ProviderID string
	// NoRegister leaves it to others to create the node object.
	NoRegister bool
	// GetOnExistsOnly has the node object not be adopted if its creation is forbidden, before an answer that it exists.
	GetOnExistsOnly bool
	// NoControllerAttach leaves out the annotation with which the controllers attach volumes. On a node object that
	// exists it stays while volumes are attached.
	NoControllerAttach bool
	// ExternalCloudProvider taints a new node until a cloud provider has initialized it, and
	// leaves the addresses to the provider once it has set them. ProvidedIP is the address that
	// the provider is to use, or two, separated by a comma.
	ExternalCloudProvider bool
	ProvidedIP            string

	// Info has the facts of the machine. Default: a [Machine] without options. Of a Machine with
	// cgroup v1, the node has kubelet's event CgroupV1.
	Info Info
	// Addresses has the addresses of the node. Default: a [HostAddresses] with Hostname.
	Addresses Addresses
	// Resources have the resources of the node: of the machine, of devices. Default: Info if it is a
	// [Resources], as a [Machine] is.
	Resources []Resources
	// RequireStorage means that the node is not ready while the capacity of ephemeral storage
	// is unknown.
	RequireStorage bool
	// Reserved is what is reserved for the system and the agent, and EvictionHard are the
	// thresholds of hard eviction, both not allocatable, see [Allocatable].
	Reserved     v1.ResourceList
	EvictionHard map[string]string
	// Images has the images to report. If nil, none are.
	Images Images
	// VolumesInUse returns the volumes that a controller attaches to the node and that pods use or will use, in any
	// order: from the controller's view a volume that is not among them can be detached. known is false while the
	// agent has not read yet which volumes pods of an earlier agent use. Then the node object keeps the volumes that it
	// has, as it does if VolumesInUse is nil. It is called for each report of the status, must not block, and must not
	// change the slice afterwards. Call [Node.Update] when another volume is in use, so that it is reported at once.
	VolumesInUse func() (volumes []v1.UniqueVolumeName, known bool)
	// Conditions return conditions beside those of kubelet, or in place of one of them, with their type, status,
	// reason and message. The times are set by the [Node]. Of two conditions of a type, the later one counts. A
	// condition that is not returned any more is left as it is in the node object.
	Conditions []func(ctx context.Context) []v1.NodeCondition
	// ReadyChecks are called for the condition Ready, each second: each returns why the node
	// cannot run pods, or nil. They must not block.
	ReadyChecks []func() error
	// Runtime returns what the runtime reports of itself: its name and version, its handlers
	// and features. A name that is empty means that it has not answered yet.
	Runtime func() runtime.Features
	// SetPodCIDR hands the runtime the addresses of pods when the node object has got them, as
	// [runtime.PodCIDRSetter] has it. If it fails, it is called again with the next look at the
	// status. If nil, nothing is handed over.
	SetPodCIDR func(ctx context.Context, cidr string) error
	// Port is the port of the kubelet's API; 0: there is none.
	Port int32
	// DeclaredFeatures returns the names of the features that the node declares (KEP-5328), such as
	// ExtendWebSocketsToKubelet if the API server may pass WebSocket requests of exec, attach and
	// port-forward on to Port. It is called for each report of the status, must not block, and must be safe for
	// concurrent use. If nil, the node declares none. An older API server without the field drops it from the
	// report. Pods that need another feature are refused, see package node/admission.
	DeclaredFeatures func() []string
	// KubeletVersion is the version to report. Default: [DefaultKubeletVersion].
	KubeletVersion string

	// UpdateFrequency is the time between two looks at the status. Default 10 s.
	UpdateFrequency time.Duration
	// ReportFrequency is the longest time between two reports. Default 5 min. After a change
	// the next report comes after half of it to all of it, so that nodes spread.
	ReportFrequency time.Duration
	// LeaseDuration is the time after which others may take the node for failed, in whole
	// seconds. Default 40 s. The lease is renewed four times in it.
	LeaseDuration time.Duration

	// LeaseClient is the client for the lease. It has a budget of its own, so that nothing
	// delays the lease. Default: the client of the node object.
	LeaseClient kubernetes.Interface
	// Available, if not nil, returns nil when calls to the API server can be authenticated, and
	// the error of ctx if that ends first. Nothing is called before.
	Available func(ctx context.Context) error
	// Startup receives when the node starts, for metrics. nil: nothing does.
	Startup Startup
	// HeartbeatFailed is called when reports or renewals have failed twice or more in a row, and
	// the last one without an answer of the API server, from two goroutines. It is to close
	// connections that may be half open. It must not block.
	HeartbeatFailed func()
	// Event receives kubelet's events about the node, such as NodeReady. It must not block.
	Event runtime.EventFunc
	// Logger receives logs. Default: that of package slog.
	Logger logr.Logger
}

// Startup receives the steps of the start of a node. The methods must not block.
type Startup interface {
	// Registering is called before each attempt to create the node object.
	Registering()
	// Registered is called when the node object was created. It is not called for one that existed.
	Registered()
	// Ready is called after each report of a node that is ready.
	Ready()
}

type noStartup struct{}

func (noStartup) Registering() {}
func (noStartup) Registered()  {}
func (noStartup) Ready()       {}

// settings are the options with their defaults. They do not change.
type settings struct {
	Options
	name string
}

// Node keeps the node object of an agent. The methods are safe for concurrent use.
type Node struct {
	s       settings
	client  kubernetes.Interface
	leases  kubernetes.Interface
	log     logr.Logger
	me      identity
	running atomic.Bool

	kick    chan struct{} // one buffered: Update; further ones coalesce
	touched chan struct{} // one buffered: the watch has delivered the object; further ones coalesce
	joined  chan struct{} // closed when the node object exists and is ours

	mu       sync.Mutex
	current  *v1.Node // the newest known object; nil before there is one; never changed in place
	exists   bool     // whether current exists; false after its deletion
	onChange []func(*v1.Node)
	images   *[]v1.ContainerImage // nil before they are known
	said     map[string]string    // the last error of each source that was logged

	// expired is when the lease was renewed that this agent takes over, by the clock of the other agent.
	// It is nil if there is none, and does not change after the node has joined.
	expired *metav1.MicroTime

	// notifying orders the calls of onChange.
	notifying sync.Mutex

	// The following belong to the goroutine that computes the status.
	lastReport    time.Time
	reportAfter   time.Duration
	written       string // the resource version after the last report; "" if its event starts another look
	other         bool   // whether the object differed from the last report after it
	refused       refusal
	unschedulable bool
	passed        bool   // whether all ReadyChecks passed at the last look
	rebooted      bool   // whether there was the event Rebooted
	podCIDR       string // what the runtime has
}

// New returns the node with the name. It does nothing before [Node.Run]. The error joins what
// is wrong with the options.
func New(client kubernetes.Interface, nodeName string, opts Options) (*Node, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("no client"))
	}
	if problems := validation.IsDNS1123Subdomain(nodeName); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("node name %q: %s", nodeName, problems[0]))
	}
	s := settings{Options: opts, name: nodeName}
	errs = append(errs, s.complete()...)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	n := &Node{
		s: s, client: client, leases: s.LeaseClient, log: s.Logger,
		kick: make(chan struct{}, 1), touched: make(chan struct{}, 1), joined: make(chan struct{}),
		said: map[string]string{},
	}
	if n.leases == nil {
		n.leases = client
	}
	return n, nil
}

// complete sets the defaults, and returns what is wrong with the settings.
func (s *settings) complete() (errs []error) {
	s.Labels, s.Reserved, s.EvictionHard = maps.Clone(s.Labels), maps.Clone(s.Reserved), maps.Clone(s.EvictionHard)
	s.Taints, s.Resources = slices.Clone(s.Taints), slices.Clone(s.Resources)
	s.Conditions, s.ReadyChecks = slices.Clone(s.Conditions), slices.Clone(s.ReadyChecks)
	if s.DeclaredFeatures == nil {
		s.DeclaredFeatures = func() []string { return nil }
	}
	if s.Hostname == "" {
		s.Hostname = s.name
	}
	if s.Info == nil {
		s.Info = NewMachine(MachineOptions{})
	}
	if len(s.Resources) == 0 {
		if r, ok := runtime.Optional[Resources](s.Info); ok {
			s.Resources = []Resources{r}
		}
	}
	if s.Addresses == nil {
		s.Addresses = &HostAddresses{Hostname: s.Hostname}
	}
	if s.Startup == nil {
		s.Startup = noStartup{}
	}
	if s.KubeletVersion == "" {
		s.KubeletVersion = DefaultKubeletVersion
	}
	for _, d := range []struct {
		field *time.Duration
		name  string
		def   time.Duration
	}{
		{&s.UpdateFrequency, "UpdateFrequency", 10 * time.Second},
		{&s.ReportFrequency, "ReportFrequency", 5 * time.Minute},
		{&s.LeaseDuration, "LeaseDuration", defaultLeaseSeconds * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.def
		}
		if *d.field < 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be above 0", d.name, *d.field))
		}
	}
	if s.LeaseDuration%time.Second != 0 {
		errs = append(errs, fmt.Errorf("LeaseDuration %s: must be whole seconds", s.LeaseDuration))
	}
	if _, err := Allocatable(nil, nil, s.EvictionHard); err != nil {
		errs = append(errs, err)
	}
	return append(errs, validLabels(s.Labels)...)
}

// Run registers the node, reports its status and renews its lease until ctx ends. It returns
// nil then, an error that wraps [ErrNodeInUse] if another agent has the name of the node, and
// [runtime.ErrAlreadyRunning] if it was called before. While the API server cannot be reached,
// it tries again.
func (n *Node) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	n.emit(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if m, ok := runtime.Optional[*Machine](n.s.Info); ok && m.hasCgroupV1() {
		n.emit(v1.EventTypeWarning, "CgroupV1", cgroupV1Warning)
	}
	if err := n.identify(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { n.runImages(ctx); return nil })
	g.Go(func() error {
		if err := n.join(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		g.Go(func() error { return n.runLease(ctx) })
		g.Go(func() error { n.watch(ctx); return nil })
		n.runReports(ctx)
		return nil
	})
	return g.Wait()
}

// identify reads the identity of the machine from Info.
func (n *Node) identify(ctx context.Context) error {
	info, err := n.s.Info.NodeInfo(ctx)
	if err != nil {
		n.log.Error(err, "Not all facts of the machine can be read")
	}
	n.me = identity{machineID: info.MachineID, systemUUID: info.SystemUUID, instance: n.s.Instance}
	return ctx.Err()
}

// Registered returns nil when the node object exists, and the error of ctx when that ends.
func (n *Node) Registered(ctx context.Context) error {
	select {
	case <-n.joined:
		return nil
	default:
	}
	select {
	case <-n.joined:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Current returns the newest known node object, and nil before the node is registered. It
// must not be changed. If the node object was deleted, it is the last one. Its status has
// the volumes that were reported as in use, and those that a controller has attached.
func (n *Node) Current() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// existing returns the node object if it exists.
func (n *Node) existing() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.exists {
		return nil
	}
	return n.current
}

// UID returns the UID of the node object: the owner of mirror pods. It is "" while there is none, and
// from its deletion on: the garbage collector deletes what such an object owns.
func (n *Node) UID() types.UID {
	if node := n.existing(); node != nil && node.DeletionTimestamp == nil {
		return node.UID
	}
	return ""
}

// OnChange has f called with each new state of the node object, in order, beginning with the
// current one if there is one: after each report, and after each change of others, such as a volume
// that was attached. f must neither block nor change the object, nor call methods
// of the Node except Current.
func (n *Node) OnChange(f func(*v1.Node)) {
	n.notifying.Lock()
	defer n.notifying.Unlock()
	n.mu.Lock()
	n.onChange = append(slices.Clip(n.onChange), f)
	node := n.current
	n.mu.Unlock()
	if node != nil {
		f(node)
	}
}

// Update has the status computed at once, and reported if it has changed; if only messages of
// conditions have, UpdateFrequency after the last report. It does not block.
func (n *Node) Update() { notify(n.kick) }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is pending
	}
}

// learn stores an object from the server, unless it has a newer one. An object with another UID is
// newer.
func (n *Node) learn(node *v1.Node) {
	if node.Name != n.s.name {
		return // the client decodes an answer of another kind as an object without a name
	}
	n.notifying.Lock()
	defer n.notifying.Unlock()
	n.mu.Lock()
	if old := n.current; old != nil && old.UID == node.UID &&
		(!n.exists || !newer(node.ResourceVersion, old.ResourceVersion)) {
		n.mu.Unlock() // a deleted object does not come back under its UID
		return
	}
	n.current, n.exists = node, true
	fs := n.onChange
	n.mu.Unlock()
	for _, f := range fs {
		f(node)
	}
}

// newer reports whether the resource version a is after b. Versions of servers whose versions
// cannot be compared are taken as they come.
func newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || c > 0
}

// lost notes that there was no node object at the resource version. A list of a server that
// is behind may miss the object that was just created.
func (n *Node) lost(version string) {
	n.mu.Lock()
	was := n.exists && newer(version, n.current.ResourceVersion)
	if was {
		n.exists = false
	}
	n.mu.Unlock()
	if was {
		n.log.Error(nil, "The node object was deleted. It is not created again: restart the agent to register the node")
	}
}

func (n *Node) emit(typ, reason, message string) {
	n.s.Event.Emit(runtime.Event{Type: typ, Reason: reason, Message: message})
}

// heartbeatFailed calls HeartbeatFailed if the connection may be at fault: an answer, whatever
// it is, shows that the connection works.
func (n *Node) heartbeatFailed(failures int, err error) {
	var answer apierrors.APIStatus
	if failures > 1 && n.s.HeartbeatFailed != nil && !errors.As(err, &answer) {
		n.s.HeartbeatFailed()
	}
}

// worthLogging leaves out most failures of a long row: those that are logged are twice as far
// apart each time.
func worthLogging(failures int) bool { return failures&(failures-1) == 0 }

// retryAfter returns the time to wait after so many failures in a row: 200 ms, doubled up to 2 s,
// and up to a half more, so that nodes spread. The other parts of the node notice by the lease that
// the server is back.
func retryAfter(failures int) time.Duration {
	return jittered(flow.Backoff{Min: 2 * fastPeriod, Max: 2 * time.Second}.After(failures), 0.5)
}

// jittered returns d and up to that part of it more.
func jittered(d time.Duration, part float64) time.Duration {
	return d + time.Duration(rand.Float64()*part*float64(d))
}
