package translate

import (
	"errors"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podNamespaces returns the namespaces that the pod's containers share with each other or
// with the host.
func podNamespaces(in *Pod) (*criv1.NamespaceOption, error) {
	spec := &in.Spec.Spec
	ns := &criv1.NamespaceOption{
		Network:       criv1.NamespaceMode_POD,
		Ipc:           criv1.NamespaceMode_POD,
		Pid:           criv1.NamespaceMode_CONTAINER,
		UsernsOptions: &criv1.UserNamespace{Mode: criv1.NamespaceMode_NODE},
	}
	if spec.HostNetwork {
		ns.Network = criv1.NamespaceMode_NODE
	}
	if spec.HostIPC {
		ns.Ipc = criv1.NamespaceMode_NODE
	}
	switch {
	case spec.HostPID:
		ns.Pid = criv1.NamespaceMode_NODE
	case isTrue(spec.ShareProcessNamespace):
		ns.Pid = criv1.NamespaceMode_POD
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		if in.Users == nil {
			return nil, errors.New("can't set `spec.hostUsers: false`, user namespaces are not supported")
		}
		ns.UsernsOptions = in.Users
	}
	return ns, nil
}

// containerNamespaces returns the namespaces of the pod, with the target of an ephemeral
// container.
func containerNamespaces(in *Container) (*criv1.NamespaceOption, error) {
	ns, err := podNamespaces(in.Pod)
	if err != nil {
		return nil, err
	}
	if in.TargetID != "" && ns.Pid == criv1.NamespaceMode_CONTAINER {
		ns.Pid = criv1.NamespaceMode_TARGET
		ns.TargetId = in.TargetID
	}
	return ns, nil
}
