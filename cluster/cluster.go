package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/cluster/events"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/cluster/podcertificates"
	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/cluster/resourceclaims"
	"github.com/kubeletkit/kubeletkit/cluster/runtimeclass"
	"github.com/kubeletkit/kubeletkit/cluster/services"
	"github.com/kubeletkit/kubeletkit/cluster/storage"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/cluster/trustbundles"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Config is the configuration of a [Node]. NodeName and REST are required.
type Config struct {
	// NodeName is the name of the node, that of [kubeletkit.Options].
	NodeName string
	// REST has the address of the API server and the credentials of the node, as
	// Config of a credentials.Client returns it. Its limits of requests have no effect, see
	// Budgets. Without a ContentType, objects are protobuf, as with kubelet; patches are JSON.
	REST *rest.Config
	// Budgets are the limits of requests.
	Budgets Budgets
	// Node are the options of the node object. [Node.Configure] sets those that are empty:
	// Info is the machine, with the limits of the agent's options; Images and Runtime are the
	// agent's; Instance is its root directory; LeaseClient has a budget of its own. It adds a ready check, that of
	// lifecycle.Node.RuntimeReadyWithin, and the conditions of a [Pressure], which those of Conditions replace.
	// NoControllerAttach is true if the options of volumes have neither Plugins nor Persistent.
	Node node.Options
	// Devices are the devices of the node, such as a devices.Manager. They are resources of the node object, and pods
	// are not refused for a lack of what they manage: the component that gives the devices does that. nil: there are
	// none.
	Devices Devices
	// RuntimeTimeout is how long the container runtime may give no answer until the node is not ready.
	// A runtime that answers that it is not ready counts at once. Default 30 s, as in the kubelet;
	// if negative, the first check without an answer counts.
	RuntimeTimeout time.Duration
	// MaxImages is the number of images in the status of the node, see node.NewImageList.
	MaxImages int
	// RestoreBeforeList starts the pods of the API server that the checkpoint has, without waiting for the first list
	// of pods. By default they wait for it while the API server can be reached, because a pod that was deleted by force
	// meanwhile may run elsewhere. If the API server gives no answer within 5 s, or refuses the node's requests, they
	// start without it. Containers that run already go on in both cases.
	RestoreBeforeList bool
	// ResourceClaims admits pods with resource claims, which a component of the agent prepares: a dra.Manager, with
	// [Node.ResourceClaims]. Otherwise such pods are refused.
	ResourceClaims bool
	// CSI means that volumes of CSI drivers can be used: a volume plugin of the agent is a csi.Plugin, with
	// [Node.Storage]. The node is not ready before it has a CSINode object, and its status has the volumes of each
	// [VolumesInUse] among the plugins, unless Node.VolumesInUse is set.
	CSI bool
	// DeferResizes is that of admission.Options.
	DeferResizes bool
	// CompareTaints is that of [admission.Node].
	CompareTaints bool
	// Logger receives logs; each part gets it under a name of its own. Default: that of package slog.
	Logger logr.Logger
}

// Devices are devices of the node.
type Devices interface {
	node.Resources
	// Manages reports whether a component of the agent decides which pods get the resource. It must not block.
	Manages(name v1.ResourceName) bool
}

// defaultRuntimeTimeout is kubelet's maxWaitForContainerRuntime.
const defaultRuntimeTimeout = 30 * time.Second

// Node makes one agent a node of a cluster. Its methods are safe for concurrent use, but for
// Configure.
type Node struct {
	config  Config
	clients clients

	source  *podsource.Source
	sink    *podstatus.Sink
	objects *objectcache.Cache
	early   earlyReferences
	first   *firstList
	events  *events.Recorder
	// The fields below exist after Configure. local is the node as far as it is known without
	// an API server.
	tokens       *tokens.Tokens
	certificates *podcertificates.Certificates
	services     *services.Services
	bundles      *trustbundles.Bundles
	classes      *runtimeclass.Classes
	admit        *admission.Admitter
	node         *node.Node
	hostIPs      *hostIPs
	local        *v1.Node
	// imagesChanged is called when an image was pulled; nil if images are not reported.
	imagesChanged func()
	// refreshes are requests for the node object as the API server has it.
	refreshes chan chan<- *v1.Node
	// agent and pressures are set when the agent is made, before anything runs. The agent is a NopNode before.
	agent     lifecycle.Node
	pressures []Pressure

	resourceClaims *resourceclaims.Client
	storage        *storage.Storage
	// states is the checkpoint of the agent after Configure; nil if there is none.
	states runtime.States
}

// New returns a node. It makes no request. Its error joins what is wrong with the
// configuration.
func New(config Config) (*Node, error) {
	config.Logger = logging.OrDefault(config.Logger)
	var errs []error
	if config.NodeName == "" {
		errs = append(errs, errors.New("Config.NodeName is required"))
	}
	if config.REST == nil {
		errs = append(errs, errors.New("Config.REST is required; package credentials makes it from a kubeconfig"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	n := &Node{config: config, refreshes: make(chan chan<- *v1.Node), agent: lifecycle.NopNode{}}
	var err error
	if n.clients, err = newClients(config.REST, config.Budgets); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if n.resourceClaims, err = resourceclaims.New(n.clients.objects, config.NodeName); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	for _, build := range []func() error{n.buildStorage, n.buildObjects, n.buildSource, n.buildSink, n.buildEvents} {
		if err := build(); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	return n, nil
}

func (n *Node) named(part string) logr.Logger { return n.config.Logger.WithName(part) }

func (n *Node) buildObjects() (err error) {
	n.objects, err = objectcache.New(n.clients.objects, n.config.NodeName,
		objectcache.Options{Logger: n.named("objectcache")})
	return err
}

func (n *Node) buildSource() (err error) {
	// What a pod refers to is known before any part of the agent has the pod.
	observers := []func(podsource.Change){
		func(c podsource.Change) {
			n.objects.Update(c.Changed, c.Removed)
			if c.Complete {
				n.early.setListed()
			}
		},
		n.forgetEnded,
		func(c podsource.Change) { n.sink.PodsChanged(c) },
		func(c podsource.Change) { n.first.PodsChanged(c) },
		n.checkUpdates,
	}
	n.source, err = podsource.New(n.clients.pods, n.config.NodeName, podsource.Options{
		Registered: func(ctx context.Context) error { return n.node.Registered(ctx) },
		Observers:  observers, Logger: n.named("podsource"),
	})
	n.first = newFirstList(n.config.NodeName, n.clients.node, n.config.Logger)
	return err
}

// checkUpdates emits kubelet's event for each pod whose update needs a feature that the node does not declare.
func (n *Node) checkUpdates(c podsource.Change) {
	for _, pod := range c.Changed {
		old, ok := n.agent.DesiredPod(pod.UID) // the agent has not received the new version yet
		if !ok || old.Generation == pod.Generation {
			continue
		}
		if message := n.admit.CheckUpdate(old, pod); message != "" {
			n.event(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: admission.ReasonUpdate,
				Message: message})
		}
	}
}

// forgetEnded has what parts keep for pods forgotten when they have ended or are gone: tokens, certificates, secrets of
// volumes.
func (n *Node) forgetEnded(c podsource.Change) {
	if !c.Complete {
		n.tokens.Update(c.Changed, c.Removed)
		n.certificates.Update(c.Changed, c.Removed)
		n.storage.Update(c.Changed, c.Removed)
		return
	}
	pods := n.source.Pods()
	n.tokens.Retain(pods)
	n.certificates.Retain(pods)
	n.storage.Retain(pods)
}

func (n *Node) buildSink() (err error) {
	budget := n.config.Budgets.Status
	n.sink, err = podstatus.New(n.clients.pods, n.source, podstatus.Options{
		NodeName: n.config.NodeName, NodeUID: n.uid, Ended: n.ended, Orphaned: n.orphaned,
		QPS: budget.QPS, Burst: budget.Burst, Logger: n.named("podstatus"),
	})
	return err
}

func (n *Node) buildEvents() (err error) {
	n.events, err = events.New(n.clients.events, n.config.NodeName,
		events.Options{Pod: n.source.ByUID, NodeUID: n.anyUID, Logger: n.named("events")})
	return err
}

// Object returns the newest known node object, and nil before the node is registered. It must
// not be changed.
func (n *Node) Object() *v1.Node {
	if n.node == nil {
		return nil
	}
	return n.node.Current()
}

// ResourceClaims reads the claims of pods and removes the slices of the node, for package node/dra.
func (n *Node) ResourceClaims() *resourceclaims.Client { return n.resourceClaims }

// OnChange has f called with each new version of the node object. It is called after
// Configure. f must not block and must not change the object.
func (n *Node) OnChange(f func(*v1.Node)) { n.node.OnChange(f) }

// Update has the status of the node computed at once, and reported if it has changed, as node.Node.Update does. It is
// called after Configure.
func (n *Node) Update() { n.node.Update() }

// uid returns the UID of the node object; "" while there is none, and from its deletion on.
func (n *Node) uid() types.UID { return n.node.UID() }

// anyUID returns the UID of the node object, also while it is being deleted: its pods run until
// they are gone. It is "" while there was none.
func (n *Node) anyUID() types.UID {
	if object := n.Object(); object != nil {
		return object.UID
	}
	return ""
}

// orphaned reports whether no source has the static pod of a mirror pod.
func (n *Node) orphaned(namespace, name string) bool {
	static, complete := n.staticPod(namespace, name)
	return static == nil && complete
}

// staticPod returns the static pod of the name, or nil. complete is true if every source has delivered its pods.
func (n *Node) staticPod(namespace, name string) (static *v1.Pod, complete bool) {
	pods, complete := n.agent.DesiredPods()
	for _, pod := range pods {
		if pod.Name == name && pod.Namespace == namespace && podspec.IsStatic(pod) {
			return pod, complete
		}
	}
	return nil, complete
}

// translateUID returns the UID of the static pod if uid is that of its mirror pod. Otherwise
// it returns uid. Users of the API server see only the UID of the mirror pod.
func (n *Node) translateUID(uid types.UID) types.UID {
	mirror, ok := n.source.ByUID(uid)
	if !ok || !podspec.IsMirror(mirror) {
		return uid
	}
	if static, _ := n.staticPod(mirror.Namespace, mirror.Name); static != nil {
		return static.UID
	}
	return uid
}

// runtimeReady is the ready check of the node.
func (n *Node) runtimeReady() error {
	return n.agent.RuntimeReadyWithin(cmp.Or(n.config.RuntimeTimeout, defaultRuntimeTimeout))
}

// event passes an event of the node on through the hook of the agent.
func (n *Node) event(e runtime.Event) { n.agent.Event(e) }
