package node

import (
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const (
	labelOS   = "beta.kubernetes.io/os"   // of k8s.io/kubelet/pkg/apis
	labelArch = "beta.kubernetes.io/arch" // of k8s.io/kubelet/pkg/apis
	// attachDetach is the annotation with which kubelet leaves attaching volumes to the
	// controller.
	attachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// taintUninitialized keeps pods away until the cloud provider has seen the node.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// defaultLabels are the labels that kubelet repairs on a node object that exists. It is never
// changed.
var defaultLabels = []string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
	v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType, v1.LabelOSStable, v1.LabelArchStable, v1.LabelWindowsBuild,
	labelOS, labelArch,
}

// initial returns the node object to create, without its status.
func (s *settings) initial() *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{
		v1.LabelHostname: s.Hostname, v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH,
		labelOS: goruntime.GOOS, labelArch: goruntime.GOARCH,
	}}}
	maps.Copy(node.Labels, s.Labels)
	node.Spec.Taints = slices.Clone(s.Taints)
	if s.ExternalCloudProvider {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true",
			Effect: v1.TaintEffectNoSchedule})
	}
	if !s.NoControllerAttach {
		node.Annotations = map[string]string{attachDetach: "true"}
	}
	node.Spec.ProviderID = s.ProviderID
	return node
}

// repair sets in a node object that exists what kubelet sets when it starts: default labels
// and the annotation of attach-detach. Extended resources become 0, since the devices may be
// gone: setResources then sets those that a source has, and other clients may set the others
// again. It changes the object.
func (s *settings) repair(node *v1.Node) {
	initial := s.initial()
	for _, label := range defaultLabels {
		if value, ok := initial.Labels[label]; ok && value != "" {
			setIn(&node.Labels, label, value)
		} else if ok {
			delete(node.Labels, label)
		}
	}
	if want, ok := initial.Annotations[attachDetach]; ok {
		setIn(&node.Annotations, attachDetach, want)
	} else if len(node.Status.VolumesAttached) == 0 {
		// else the controller would detach volumes that pods of a former kubelet use
		delete(node.Annotations, attachDetach)
	}
	for name := range node.Status.Capacity {
		if podspec.IsExtendedResource(name) {
			node.Status.Capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

// keepLabels sets the labels that kubelet repairs while it runs.
func keepLabels(node *v1.Node) {
	setIn(&node.Labels, v1.LabelOSStable, goruntime.GOOS)
	setIn(&node.Labels, v1.LabelArchStable, goruntime.GOARCH)
}

// missingCapacity returns an error if a resource that every node needs is unknown.
func missingCapacity(capacity v1.ResourceList, storage bool) error {
	required := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if storage {
		required = append(required, v1.ResourceEphemeralStorage)
	}
	var missing []string
	for _, name := range required {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("missing node capacity for resources: %s", strings.Join(missing, ", "))
}

// ErrNodeInUse means that another agent has the name of the node.
var ErrNodeInUse = errors.New("another agent has the name of this node")
