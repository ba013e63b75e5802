package kubelet

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
)

// nodeObject returns the node as an API server has it, or without one as it would be registered.
func (k *Kubelet) nodeObject(ctx context.Context) (*v1.Node, error) {
	node := &v1.Node{}
	if k.joins != nil && k.joins.Object() != nil {
		node = k.joins.Object().DeepCopy()
	} else if err := k.describeNode(ctx, node); err != nil {
		return nil, err
	}
	node.APIVersion, node.Kind = "v1", "Node"
	return node, nil
}

func (k *Kubelet) describeNode(ctx context.Context, node *v1.Node) (err error) {
	parts := k.agent.Parts()
	machine := clusternode.NewMachine(k.settings.MachineOptions())
	st := &node.Status
	node.Name = parts.Host.NodeName
	if st.Capacity, _, err = machine.NodeResources(ctx); err != nil {
		return err
	}
	st.Allocatable = maps.Clone(parts.Host.Allocatable)
	st.Allocatable[v1.ResourcePods] = *resource.NewQuantity(st.Capacity.Pods().Value(), resource.DecimalSI)
	if st.NodeInfo, err = machine.NodeInfo(ctx); err != nil {
		return err
	}
	st.NodeInfo.KubeletVersion = k.opts.version().Kubernetes
	rt := k.features()
	st.NodeInfo.ContainerRuntimeVersion = rt.Name + "://" + rt.Version
	for _, ip := range parts.HostIPs() {
		st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: node.Name})
	pressure := k.node.Status().Pressure
	under := func(c v1.NodeConditionType) bool { return slices.Contains(pressure, c) }
	st.Conditions = []v1.NodeCondition{clusternode.MemoryPressure(under(v1.NodeMemoryPressure)),
		clusternode.DiskPressure(under(v1.NodeDiskPressure)), clusternode.PIDPressure(under(v1.NodePIDPressure)),
		clusternode.Ready(k.agent.RuntimeReady())}
	return nil
}
