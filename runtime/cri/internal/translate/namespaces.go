package translate

import (
	"cmp"
	"errors"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// podNamespaces returns the namespaces that the pod's containers share with each other or
// with the host. users is its user namespace, if it has one.
func podNamespaces(in *Pod, users *runtime.UserNamespace) (*criv1.NamespaceOption, error) {
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
	if podspec.HasUserNamespace(in.Spec) {
		if users == nil {
			return nil, errors.New("can't set `spec.hostUsers: false`, user namespaces are not supported")
		}
		ns.UsernsOptions = &criv1.UserNamespace{Mode: criv1.NamespaceMode_POD, Uids: idMappings(users.UIDs),
			Gids: idMappings(users.GIDs)}
	}
	return ns, nil
}

// idMappings returns the mappings in the form of CRI.
func idMappings(list []runtime.IDMapping) (out []*criv1.IDMapping) {
	for _, m := range list {
		out = append(out, &criv1.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length})
	}
	return out
}

// containerNamespaces returns the namespaces of the pod, with the target of an ephemeral
// container.
func containerNamespaces(in *Container) (*criv1.NamespaceOption, error) {
	ns, err := podNamespaces(in.Pod, cmp.Or(in.Edits.UserNamespace, in.Pod.Edits.UserNamespace))
	if err != nil {
		return nil, err
	}
	if in.TargetID != "" && ns.Pid == criv1.NamespaceMode_CONTAINER {
		ns.Pid = criv1.NamespaceMode_TARGET
		ns.TargetId = in.TargetID
	}
	return ns, nil
}
