package node

import (
	goruntime "runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// observed has the values of the sources, before they are written into a node object.
type observed struct {
	// addresses, info and images are nil if their source has failed: then those of the node object
	// stay.
	addresses []v1.NodeAddress
	info      *v1.NodeSystemInfo
	images    *[]v1.ContainerImage
	// volumesInUse is nil while they are not known: then those of the node object stay.
	volumesInUse *[]v1.UniqueVolumeName

	capacity, allocatable v1.ResourceList
	// missing are the problems that keep the node from being ready.
	missing    []error
	conditions []v1.NodeCondition // without Ready; each type once
	ready      *v1.NodeCondition  // of a source; nil: missing decides
	runtime    runtime.Features
	port       int32
}

// setStatus writes what was observed into the node object, which it changes. It keeps what
// belongs to others: their conditions, their resources, attached volumes. It returns the
// reasons of events.
func (o *observed) setStatus(node *v1.Node, s *settings, now time.Time) (events []string) {
	st := &node.Status
	o.setAddresses(node, s)
	o.setResources(st, s)
	if o.info != nil {
		version := st.NodeInfo.ContainerRuntimeVersion
		st.NodeInfo = *o.info
		st.NodeInfo.ContainerRuntimeVersion = version
	}
	st.NodeInfo.KubeProxyVersion = "" //lint:ignore SA1019 kubelet clears it, too
	st.NodeInfo.OperatingSystem, st.NodeInfo.Architecture = goruntime.GOOS, goruntime.GOARCH
	st.NodeInfo.KubeletVersion = s.KubeletVersion
	if o.runtime.Name != "" { // the runtime has answered
		st.NodeInfo.ContainerRuntimeVersion = o.runtime.Name + "://" + o.runtime.Version
		st.RuntimeHandlers = runtimeHandlers(o.runtime.Handlers)
		st.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &o.runtime.SupplementalGroupsPolicy}
	} else if st.NodeInfo.ContainerRuntimeVersion == "" {
		st.NodeInfo.ContainerRuntimeVersion = "unknown://Unknown"
	}
	if o.images != nil {
		st.Images = *o.images
	}
	if o.volumesInUse != nil {
		st.VolumesInUse = slices.Compact(slices.Sorted(slices.Values(*o.volumesInUse)))
	}
	st.DaemonEndpoints.KubeletEndpoint.Port = o.port
	st.DeclaredFeatures = slices.Compact(slices.Sorted(slices.Values(s.DeclaredFeatures()))) // as the API requires
	st.Conditions, events = setConditions(slices.Clone(st.Conditions), o.allConditions(st, s), now)
	return events
}

func (o *observed) setAddresses(node *v1.Node, s *settings) {
	const providedIP = "alpha.kubernetes.io/provided-node-ip" // cloud-provider's AnnotationAlphaProvidedIPAddr
	if !s.ExternalCloudProvider {
		delete(node.Annotations, providedIP)
	} else if s.ProvidedIP != "" {
		setIn(&node.Annotations, providedIP, s.ProvidedIP)
	}
	if len(o.addresses) == 0 || s.ExternalCloudProvider && len(node.Status.Addresses) > 0 {
		return // the cloud provider sets them
	}
	node.Status.Addresses = o.addresses
}

// setResources sets the resources that the sources have. Those of other clients stay, and are
// allocatable as a whole; huge pages of a size that the machine has no more go.
func (o *observed) setResources(st *v1.NodeStatus, s *settings) {
	capacity := v1.ResourceList{}
	for name, q := range st.Capacity {
		if _, ours := o.capacity[name]; !ours && !isHugePage(name) {
			capacity[name] = q
		}
	}
	for name, q := range o.capacity {
		capacity[name] = q
	}
	st.Capacity = capacity
	allocatable, err := Allocatable(capacity, s.Reserved, s.EvictionHard)
	if err != nil { // New has checked it
		allocatable = v1.ResourceList{}
	}
	for name, q := range o.allocatable {
		allocatable[name] = q
	}
	st.Allocatable = allocatable
}

// allConditions returns the conditions to report, Ready last as kubelet has it.
func (o *observed) allConditions(st *v1.NodeStatus, s *settings) []v1.NodeCondition {
	out := []v1.NodeCondition{MemoryPressure(false), DiskPressure(false), PIDPressure(false)}
	for _, c := range o.conditions {
		out = put(out, c)
	}
	if o.ready != nil {
		return append(out, *o.ready)
	}
	missing := o.missing
	if err := missingCapacity(st.Capacity, s.RequireStorage); err != nil {
		missing = append(slices.Clip(missing), err)
	}
	return append(out, Ready(missing...))
}

func runtimeHandlers(list []runtime.Handler) []v1.NodeRuntimeHandler {
	out := make([]v1.NodeRuntimeHandler, 0, len(list))
	for _, h := range list {
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: &h.UserNamespaces,
		}})
	}
	return out
}

// changed reports whether anything but heartbeats differs.
func changed(a, b *v1.Node) bool {
	if !sameConditions(a.Status.Conditions, b.Status.Conditions) {
		return true
	}
	x, y := a.Status, b.Status
	x.Conditions, y.Conditions = nil, nil
	return !equality.Semantic.DeepEqual(&x, &y) || !equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// onlyMessages reports whether nothing but heartbeats and messages of conditions differs.
func onlyMessages(a, b *v1.Node) bool {
	x := *b
	x.Status.Conditions = slices.Clone(b.Status.Conditions)
	for i := range x.Status.Conditions {
		if old := condition(a.Status.Conditions, x.Status.Conditions[i].Type); old != nil {
			x.Status.Conditions[i].Message = old.Message
		}
	}
	return !changed(a, &x)
}

func setIn(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
