package runtime

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodRef names one incarnation of a pod. Two pods of the same name that live
// one after the other differ in UID.
type PodRef struct {
	UID       types.UID
	Namespace string
	Name      string
}

// RefOf returns the reference of an API pod.
func RefOf(pod *v1.Pod) PodRef {
	return PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}

// FullName returns "<name>_<namespace>", by which static pods are told apart:
// at most one pod of a full name may run on a node.
func (r PodRef) FullName() string { return r.Name + "_" + r.Namespace }

// String returns "namespace/name(uid)", the form used in messages and errors.
func (r PodRef) String() string {
	return r.Namespace + "/" + r.Name + "(" + string(r.UID) + ")"
}

// MarshalLog makes a logr sink print the reference as one word.
func (r PodRef) MarshalLog() any { return r.String() }

// ContainerID identifies one instance of a container: the runtime's name, as in
// "containerd", and the ID that the runtime gave it.
type ContainerID struct {
	Type string
	ID   string
}

// ParseContainerID reads the form that [ContainerID.String] writes, which is
// also the form of containerID in a pod's API status.
func ParseContainerID(s string) (ContainerID, error) {
	typ, id, ok := strings.Cut(s, "://")
	if !ok || typ == "" || id == "" {
		return ContainerID{}, fmt.Errorf("container ID %q: want the form <runtime>://<id>", s)
	}
	return ContainerID{Type: typ, ID: id}, nil
}

// String returns "<type>://<id>", or "" for the zero value.
func (c ContainerID) String() string {
	if c.IsZero() {
		return ""
	}
	return c.Type + "://" + c.ID
}

// IsZero reports whether the ID names nothing.
func (c ContainerID) IsZero() bool { return c == ContainerID{} }

// MarshalLog makes a logr sink print the ID as one word.
func (c ContainerID) MarshalLog() any { return c.String() }
