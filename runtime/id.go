package runtime

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodRef identifies a pod. Only the UID is unique: a pod that replaces another one may
// have its name.
type PodRef struct {
	UID       types.UID
	Namespace string
	Name      string
}

// RefOf returns the reference of the pod.
func RefOf(pod *v1.Pod) PodRef {
	return PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}

// FullName returns "<name>_<namespace>". At most one static pod with a full name runs
// on a node at a time.
func (r PodRef) FullName() string { return r.Name + "_" + r.Namespace }

// LogDirName returns "<namespace>_<name>_<uid>", the name of the directory below
// [Host].PodLogsDir that has the logs of the pod's containers, each in a directory of its name.
func (r PodRef) LogDirName() string { return r.Namespace + "_" + r.Name + "_" + string(r.UID) }

// String returns "namespace/name(uid)", for messages and errors.
func (r PodRef) String() string {
	return r.Namespace + "/" + r.Name + "(" + string(r.UID) + ")"
}

// MarshalLog returns the reference as one word for logr.
func (r PodRef) MarshalLog() any { return r.String() }

// ContainerID identifies an instance of a container: the name of the runtime, such as
// "containerd", and the runtime's ID.
type ContainerID struct {
	Type string
	ID   string
}

// ParseContainerID parses a container ID in the form "<type>://<id>", which is that of
// containerID in a pod's API status.
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

// IsZero reports whether c is the zero value.
func (c ContainerID) IsZero() bool { return c == ContainerID{} }

// MarshalLog returns the ID as one word for logr.
func (c ContainerID) MarshalLog() any { return c.String() }
