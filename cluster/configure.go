package cluster

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/cluster/podcertificates"
	"github.com/kubeletkit/kubeletkit/cluster/runtimeclass"
	"github.com/kubeletkit/kubeletkit/cluster/services"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/cluster/trustbundles"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Configure adds the parts of the node to the options of an agent. It is called once, when all
// other options are set:
//
//   - Sources gets the source of the pods that the API server has bound to the node.
//   - StatusSink becomes a sink for both, the API server and the sink that was there.
//   - Objects looks up what pods of the API server refer to there, and everything else in the
//     source that was there.
//   - Tokens are service account tokens, PodCertificates the certificates of pods, TrustBundles
//     cluster trust bundles, ServiceEnv has the variables of services, EveryEvent also writes
//     events to the API server. TranslateUID has the mirror pods. Claims, if it is nil, reads claims and persistent
//     volumes there. NodeLabels and NodeAllocatable, if they are nil, have those of the node object.
//   - Join gets the checks of the node, and the membership: the component that has the agent, runs what the node needs,
//     and finds each [Pressure] among the components. The checks replace the limits of resources and of the number of
//     pods in Limits, which become those of the node object.
//   - HostIPs has the addresses of the node object, the internal ones before the external ones. While
//     it has none, they are those of Config.Node.Addresses if that is a node.HostAddresses, the
//     default, and otherwise those that the options had.
//
// After it the caller may wrap what it has set, and add to Join: without the membership in it, the node is in no
// cluster. Host is detected if it is nil, with what Config.Node reserves taken
// off.
func (n *Node) Configure(opts *kubeletkit.Options) error {
	if n.node != nil {
		return errors.New("cluster: Configure was called before; each Node is for one agent")
	}
	if opts.NodeName != n.config.NodeName {
		return fmt.Errorf("cluster: Options.NodeName is %q, and Config.NodeName is %q",
			opts.NodeName, n.config.NodeName)
	}
	if opts.RootDir == "" {
		opts.RootDir = kubeletkit.DefaultRootDir
	}
	if opts.Checkpoint != nil {
		n.states = opts.Checkpoint
	}
	n.buildHostIPs(opts)
	if opts.Host == nil {
		host, err := kubeletkit.DetectHost(opts.RootDir)
		if err != nil {
			return fmt.Errorf("cluster: detecting the host: %w", err)
		}
		if host.Allocatable, err = node.Allocatable(host.Allocatable, n.config.Node.Reserved,
			n.config.Node.EvictionHard); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
		opts.Host = host
	}
	if err := n.buildNode(opts); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := n.buildLookups(opts); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	var err error
	if n.admit, err = n.admission(); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	source := restorable{Source: n.source, early: &n.early}
	if !n.config.RestoreBeforeList {
		source.first = n.first
	}
	opts.Sources = append(slices.Clone(opts.Sources), source)
	opts.Join = append(slices.Clone(opts.Join), n.admit, membership{n})
	opts.Admission.Limits.MaxPods, opts.Admission.Limits.Allocatable = 0, nil
	opts.StatusSink = joinSinks(n.sink, opts.StatusSink)
	if opts.Checkpoint == nil {
		n.early.setRestored(nil)
	} else if opts.API.Objects != nil {
		opts.Checkpoint = checkedCheckpoint{opts.Checkpoint, n.refers}
	}
	opts.API.Objects = bothObjects(n.objects, opts.API.Objects, &n.early)
	opts.API.Tokens, opts.API.PodCertificates, opts.API.TrustBundles, opts.API.ServiceEnv = n.tokens, n.certificates,
		n.bundles, n.services.Env
	opts.API.TranslateUID = n.translateUID
	if opts.API.Claims == nil {
		opts.API.Claims = claims{n.clients.objects}
	}
	if opts.API.NodeLabels == nil {
		opts.API.NodeLabels = n.labels
	}
	if opts.API.NodeAllocatable == nil {
		opts.API.NodeAllocatable = n.allocatable
	}
	opts.Observe.EveryEvent = bothEvents(n.written, opts.Observe.EveryEvent)
	return nil
}

// buildLookups builds what the API server is asked for when pods need it, with the checkpoint
// of the agent.
func (n *Node) buildLookups(opts *kubeletkit.Options) (err error) {
	topts := tokens.Options{Refreshed: n.sync, Logger: n.named("tokens")}
	sopts := services.Options{Sync: n.sync, Logger: n.named("services")}
	bopts := trustbundles.Options{Changed: n.syncBundles, Logger: n.named("trustbundles")}
	copts := runtimeclass.Options{Appeared: n.syncClass, Logger: n.named("runtimeclass")}
	if store := opts.Checkpoint; store != nil {
		topts.Checkpoint, sopts.Checkpoint, bopts.Checkpoint, copts.Checkpoint = store, store, store, store
	}
	if n.tokens, err = tokens.New(n.clients.objects, topts); err != nil {
		return err
	}
	n.certificates, err = podcertificates.New(n.clients.objects, n.config.NodeName, podcertificates.Options{
		NodeUID: n.anyUID, Pod: n.source.ByUID, Changed: n.sync, Observer: runtime.Observer{Event: n.event,
			Logger: n.named("podcertificates"), NonBlocking: true},
	})
	if err != nil {
		return err
	}
	if n.services, err = services.New(n.clients.objects, sopts); err != nil {
		return err
	}
	if n.bundles, err = trustbundles.New(n.clients.objects, bopts); err != nil {
		return err
	}
	n.classes, err = runtimeclass.New(n.clients.objects, copts)
	return err
}

// RuntimeHandler returns the runtime handler of a runtime class. It is for the options of
// runtime/cri. Before [Node.Configure] it fails.
func (n *Node) RuntimeHandler(class string) (string, error) {
	if n.classes == nil {
		return "", runtimeclass.ErrNotRead
	}
	return n.classes.Handler(class)
}

// syncClass has the agent sync the pods of a runtime class.
func (n *Node) syncClass(class string) {
	for _, pod := range n.source.Pods() {
		if c := pod.Spec.RuntimeClassName; c != nil && *c == class {
			n.sync(pod.UID)
		}
	}
}

// syncBundles has the agent sync the pods with volumes of cluster trust bundles.
func (n *Node) syncBundles() {
	for _, pod := range n.agent.Pods() {
		if trustbundles.Uses(pod) {
			n.sync(pod.UID)
		}
	}
}

// sync has the agent sync a pod.
func (n *Node) sync(uid types.UID) { n.agent.Sync(uid) }

// buildNode builds the node object with the options of the agent.
func (n *Node) buildNode(opts *kubeletkit.Options) error {
	o := n.config.Node
	if o.Instance == "" {
		o.Instance = opts.RootDir
	}
	if o.Info == nil {
		o.Info = node.NewMachine(node.MachineOptions{StorageDir: opts.RootDir, MaxPods: opts.Admission.Limits.MaxPods})
	}
	var more []node.Resources
	if len(opts.Admission.Limits.Allocatable) > 0 {
		more = append(more, limited(opts.Admission.Limits.Allocatable.DeepCopy()))
	}
	if n.config.Devices != nil {
		more = append(more, n.config.Devices)
	}
	if len(more) > 0 {
		if machine, ok := runtime.Optional[node.Resources](o.Info); ok && len(o.Resources) == 0 {
			o.Resources = []node.Resources{machine} // the default
		}
		o.Resources = slices.Concat(o.Resources, more)
	}
	if images, ok := runtime.Optional[runtime.ImageService](opts.Runtime); ok && o.Images == nil {
		o.Images = node.NewImageList(images, n.config.MaxImages)
	}
	if list, ok := o.Images.(*node.ImageList); ok {
		n.imagesChanged = list.Changed
	}
	if reporter, ok := runtime.Optional[runtime.FeatureReporter](opts.Runtime); ok && o.Runtime == nil {
		o.Runtime = reporter.Features
	}
	if setter, ok := runtime.Optional[runtime.PodCIDRSetter](opts.Runtime); ok && o.SetPodCIDR == nil {
		o.SetPodCIDR = setter.SetPodCIDR
	}
	if len(opts.Volumes.Plugins)+len(opts.Volumes.Persistent) == 0 {
		o.NoControllerAttach = true // no volume could be used that a controller attaches
	}
	if o.LeaseClient == nil {
		o.LeaseClient = n.clients.lease
	}
	if o.Event == nil {
		o.Event = n.event
	}
	if o.Logger.GetSink() == nil {
		o.Logger = n.named("node")
	}
	o.ReadyChecks = append(slices.Clone(o.ReadyChecks), n.runtimeReady)
	if n.config.CSI {
		o.ReadyChecks = append(o.ReadyChecks, n.storage.Ready)
		if o.VolumesInUse == nil {
			o.VolumesInUse = volumesInUse(opts.Volumes.Persistent)
		}
	}
	// those of the configuration are later, and count
	o.Conditions = append([]func(context.Context) []v1.NodeCondition{n.pressure}, o.Conditions...)
	n.local = localNode(opts, o)
	var err error
	if n.node, err = node.New(n.clients.node, n.config.NodeName, o); err != nil {
		return err
	}
	n.node.OnChange(n.addressesChanged)
	if n.config.CSI {
		n.node.OnChange(n.storage.NodeChanged)
	}
	return nil
}

// limited has what the options of the agent make allocatable.
type limited v1.ResourceList

// NodeResources implements [node.Resources].
func (l limited) NodeResources(context.Context) (capacity, allocatable v1.ResourceList, err error) {
	return nil, v1.ResourceList(l), nil
}

// localNode returns the node as far as it is known without an API server.
func localNode(opts *kubeletkit.Options, o node.Options) *v1.Node {
	local := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: opts.NodeName, Labels: map[string]string{
		v1.LabelHostname: opts.NodeName, v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH,
	}}}
	for key, value := range o.Labels {
		local.Labels[key] = value
	}
	local.Status.Allocatable = opts.Host.Allocatable.DeepCopy()
	if local.Status.Allocatable == nil {
		local.Status.Allocatable = v1.ResourceList{}
	}
	for name, quantity := range opts.Admission.Limits.Allocatable {
		local.Status.Allocatable[name] = quantity.DeepCopy()
	}
	if opts.Admission.Limits.MaxPods != 0 {
		local.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(int64(max(0, opts.Admission.Limits.MaxPods)),
			resource.DecimalSI)
	}
	return local
}

// labels returns the newest known labels of the node.
func (n *Node) labels() map[string]string {
	if object := n.node.Current(); object != nil {
		return object.Labels
	}
	return n.local.Labels
}

// allocatable returns the newest known allocatable resources of the node.
func (n *Node) allocatable() v1.ResourceList {
	if object := n.node.Current(); object != nil && len(object.Status.Allocatable) > 0 {
		return object.Status.Allocatable
	}
	return n.local.Status.Allocatable
}

// written receives the events of the agent.
func (n *Node) written(e runtime.Event) {
	if e.Reason == "Pulled" && n.imagesChanged != nil {
		n.imagesChanged()
	}
	n.events.Event(e)
}

// admission returns the checks of the node.
func (n *Node) admission() (*admission.Admitter, error) {
	var managed func(v1.ResourceName) bool
	if n.config.Devices != nil {
		managed = n.config.Devices.Manages
	}
	return admission.New(admission.Options{
		Managed: managed,
		Node: func() admission.Node {
			if object := n.node.Current(); object != nil {
				return n.confirmed(object)
			}
			return admission.Node{Node: n.local}
		},
		Refresh:          n.refresh,
		DeclaredFeatures: n.config.Node.DeclaredFeatures,
		ResourceClaims:   n.config.ResourceClaims,
		DeferResizes:     n.config.DeferResizes,
		Logger:           n.named("admission"),
	})
}

// confirmed returns the node, which is as the API server has it, for the checks.
func (n *Node) confirmed(object *v1.Node) admission.Node {
	return admission.Node{Node: object, Confirmed: true, CompareTaints: n.config.CompareTaints}
}

// refreshTimeout bounds the time that the sync loop waits for the node object.
const refreshTimeout = time.Second

// refresh returns the node as the API server has it now, and false if it does not answer.
func (n *Node) refresh() (admission.Node, bool) {
	late := time.After(refreshTimeout)
	answer := make(chan *v1.Node, 1)
	select {
	case n.refreshes <- answer:
	case <-late:
		return admission.Node{}, false
	}
	select {
	case object := <-answer:
		return n.confirmed(object), object != nil
	case <-late:
		return admission.Node{}, false
	}
}

// answerRefreshes reads the node object for refresh, until ctx ends. It is nil if it cannot
// be read.
func (n *Node) answerRefreshes(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case answer := <-n.refreshes:
			call, cancel := context.WithTimeout(ctx, refreshTimeout)
			object, err := n.clients.node.CoreV1().Nodes().Get(call, n.config.NodeName, metav1.GetOptions{})
			cancel()
			if err != nil {
				n.config.Logger.V(2).Info("The node object cannot be read", "err", err)
				object = nil
			}
			answer <- object
		}
	}
}
